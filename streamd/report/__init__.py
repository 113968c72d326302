"""Reports on a stream and its consumer groups: what `streamd report` collects and draws.

collect(connection, stream, ...)   look at the stream, and watch its groups for a while: a Report
render_html(report)                a self-contained page with plots
render_json(report)                the same for programs
write_tables(report, folder)       the same as Parquet files
publish(connection, report, key)   the state of the groups, as entries of a stream
"""

from streamd.report.make import Report, collect, last_id, publish, render_json, write_tables
from streamd.report.page import render_html

__all__ = ["Report", "collect", "last_id", "publish", "render_html", "render_json", "write_tables"]
