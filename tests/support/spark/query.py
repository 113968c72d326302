"""A streaming query in a process of its own, to be killed: entries of streams into a Parquet folder, or into a stream.

    python -m support.spark.query '{"folder": ..., "options": {...}, "is_final": false, "sink": null}'

It runs until it is killed; with `is_final`, it reads what exists and ends. `sink`: options of a stream to write to. Two more that
need not be there: `master`, and `files`, a folder of Parquet files with the columns k and n to read instead of streams.
"""

from __future__ import annotations

import json
import sys

from streamd.spark.session import CI_SETTINGS, session


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = session("streamd-killed", master=job.get("master", "local[2]"), config=CI_SETTINGS)
    if files := job.get("files"):
        frame = spark.readStream.schema("k string, n long").parquet(files)
    else:
        frame = spark.readStream.format("streamd").options(**job["options"]).load()
    if job["sink"] is None:
        writer = frame.select("stream", "id").writeStream.format("parquet").option("path", f"{job['folder']}/out")
    else:
        rows = frame if files else frame.select("id", "fields").withColumnRenamed("id", "key")
        writer = rows.writeStream.format("streamd").options(**job["sink"])
    writer = writer.option("checkpointLocation", f"{job['folder']}/checkpoint")
    query = (writer.trigger(availableNow=True) if job["is_final"] else writer).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
