"""What the server reports about itself: INFO, slow log, latency, hot keys, MONITOR, the command table."""
