"""Features that are not supported (the cluster, modules, other data types): their commands, settings and fields of INFO."""
