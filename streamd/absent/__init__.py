"""Commands of what this server does not have, answered as clients expect it: the cluster, modules, scripts."""
