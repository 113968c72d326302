"""The life of the process: its log, its supervisor, the sockets that it listens on, and ports that speak HTTP."""
