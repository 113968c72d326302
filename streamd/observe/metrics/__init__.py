"""The server's metrics for Prometheus: what they are, how they are written, and the port that gives them out."""
