"""A program for tests of sessions that are not in this process: it writes, reads and runs a query, and prints what it found.

Reads JSON from standard input: `remote` or `master` says where Spark is, `options` how to reach the server, `folder` where the
checkpoint goes. Prints JSON: rows by what was done, and the executors that took part.
"""

from __future__ import annotations

import json
import sys
from typing import Any

COUNT = 50_000


def main() -> None:
    job: dict[str, Any] = json.load(sys.stdin)
    if "remote" in job:
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        spark = builder.remote(job["remote"]).config("spark.sql.shuffle.partitions", "2").getOrCreate()
        import streamd.spark

        streamd.spark.register(spark)
    else:
        import streamd.spark

        spark = streamd.spark.session(
            master=job["master"],
            config={
                "spark.driver.host": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.executor.memory": "512m",
                "spark.sql.shuffle.partitions": "2",
            },
        )
    options = job["options"]
    found: dict[str, Any] = {}

    def read(stream: str, **more: str) -> Any:
        return spark.read.format("streamd").options(stream=stream, **options, **more).load()

    rows = spark.range(0, COUNT, numPartitions=4).selectExpr("string(id) AS n")
    for _ in range(2):  # the second write is the first one again
        rows.write.format("streamd").mode("append").options(
            stream="in", delivery="exactly-once", runId="rows", **options
        ).save()
    found["written"] = read("in").count()
    fields = read("in", fields="text", minPartitions="4").selectExpr(
        "fields[0].value AS n", "spark_partition_id() AS part"
    )
    found["distinct"], found["parts"] = (fields.select(name).distinct().count() for name in ("n", "part"))
    try:
        query = (
            spark.readStream.format("streamd").options(stream="in", maxEntriesPerTrigger="20000", **options).load()
            .select("fields").writeStream.format("streamd").options(stream="out", delivery="exactly-once", **options)
            .option("checkpointLocation", f"{job['folder']}/checkpoint").trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination(120)
        found["query"] = read("out").count()
    except Exception as error:
        found["query"] = str(error)
    try:
        read("nosuch").count()
    except Exception as error:
        found["missing"] = str(error).splitlines()[0]
    spark.stop()
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
