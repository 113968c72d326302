"""Everything that the data source does, with passwords, in a session with maximum logging.

    echo '{"ways": [{"port": ..., "password": ...}, ...], "wrong": [...]}' | python -m support.spark.passwords FOLDER

Reads the stream `in` with each of the two sets of options, archives it, and copies it with one at each end; then tries
those that are wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from streamd.archive.archiver import ArchiveSettings, archive
from streamd.spark.session import CI_SETTINGS, session

SETTINGS = ArchiveSettings(hot_window_ms=0, trim=False)


def main() -> None:
    folder = Path(sys.argv[1])
    settings = {
        **CI_SETTINGS,
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = session("streamd-secrets", master="local[2]", config=settings)
    job = json.load(sys.stdin)
    for options in job["ways"]:
        frame = spark.read.format("streamd").options(stream="in", **options).load()
        frame.explain("extended")
        print(frame.count())
    query = (
        spark.readStream.format("streamd").options(stream="in", **job["ways"][0]).load().select("fields")
        .writeStream.format("streamd").options(stream="out", delivery="exactly-once", **job["ways"][1])
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress)
    print(archive(str(folder / "archive"), {"stream": "in", **options}, settings=SETTINGS).to_json())
    for options in job["wrong"]:
        try:
            spark.read.format("streamd").options(stream="in", **options).load().count()
        except Exception as error:
            print(error)
    spark.stop()


if __name__ == "__main__":
    main()
