"""Commands about features that this server does not have, answered as clients expect: the cluster, modules."""
