"""Streams in Spark: a PySpark data source for streamd, Redis and Valkey, over the wire."""
