"""Found by PySpark by its name: makes `format("streamd")` and SQL's `USING streamd` work without a call."""

from streamd.spark.data_source import StreamdDataSource as DefaultSource

__all__ = ["DefaultSource"]
