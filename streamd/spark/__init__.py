"""Streams in Spark: a PySpark data source for streamd, Redis and Valkey, over the wire.

    import streamd.spark

    spark = streamd.spark.session()                 # or streamd.spark.register(a_session)
    spark.read.format("streamd").option("stream", "readings").load().show()

Options: docs/spark-options.md. Needs PySpark 4.1 to 4.3 and PyArrow (the extra `spark`), and Java 17 or newer.
streamd.archive, streamd.report and streamd.transfer need no Spark (the extra `archive`).
"""

from streamd.client.client_errors import (
    DataLossError,
    MalformedError,
    MissingStreamError,
    OptionError,
    ServerError,
    UnreachableError,
)
from streamd.spark.session import find_java, register, session
from streamd.spark.spark_errors import JavaMissingError, WorkerPythonError

__all__ = [
    "DataLossError",
    "JavaMissingError",
    "MalformedError",
    "MissingStreamError",
    "OptionError",
    "ServerError",
    "UnreachableError",
    "WorkerPythonError",
    "find_java",
    "register",
    "session",
]
