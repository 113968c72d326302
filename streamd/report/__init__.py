"""Reports on the entries of a stream: what `streamd report` collects and draws.

collect(connection, stream, ...)   look at the stream: a Report
render_html(report)                a self-contained page with plots
render_json(report)                the same for programs
"""

from streamd.report.make import collect, render_json
from streamd.report.page import Report, render_html

__all__ = ["Report", "collect", "render_html", "render_json"]
