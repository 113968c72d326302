"""A streaming query in a process of its own, to be killed: entries of streams into a Parquet folder.

    python -m support.spark_query '{"folder": ..., "options": {...}, "is_final": false}'

It goes on until it is killed; with `is_final`, it reads what there is and ends.
"""

from __future__ import annotations

import json
import sys

from streamd.spark.session import CI_SETTINGS, session


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = session("streamd-killed", master="local[2]", config=CI_SETTINGS)
    writer = (
        spark.readStream.format("streamd")
        .options(**job["options"])
        .load()
        .select("stream", "id")
        .writeStream.format("parquet")
        .option("path", f"{job['folder']}/out")
        .option("checkpointLocation", f"{job['folder']}/checkpoint")
    )
    query = (writer.trigger(availableNow=True) if job["is_final"] else writer).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
