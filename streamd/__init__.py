"""streamd: a Redis-protocol server for streams and publish/subscribe."""

__all__ = ["REDIS_VERSION", "__version__"]

__version__ = "0.1.0"

REDIS_VERSION = "8.6.3"
"""The Redis release whose behaviour is spoken; what INFO calls `redis_version`."""
