"""Guard: which requests the console answers at all, and the headers of all answers.

A page of somebody else, open in the same browser, can send requests to the console, too. Against that:

    the Host header      is an address, `localhost` or one of `http-hosts`: a foreign name that resolves to this machine
                         (DNS rebinding) is not the console's origin
    Sec-Fetch-Site       of a browser that sends it: `same-origin`, or `none` for what the user has typed; the page itself, which
                         holds nothing, may be linked to from elsewhere
    Origin               of what changes something: that of the console
    the cookie           SameSite=Strict, HttpOnly
    X-Console-Proof      of what changes something: a secret of the session that only its own page can read
"""

from __future__ import annotations

from collections.abc import Mapping

from streamd.process.http_guard import RefusedError, check_body, host_name, is_known_host

__all__ = ["HEADERS", "RefusedError", "check"]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Of every answer."""


def check(method: str, path: str, headers: Mapping[str, str], names: str) -> None:
    """Refuse what did not come from the console's own page, or from a user; raises RefusedError.

    names  the setting `http-hosts`
    """
    host = headers.get("Host", "")
    if not is_known_host(host_name(host), names):
        raise RefusedError(421, "The console does not accept this host name: see the setting http-hosts.")
    if path.startswith("/api/") and headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        raise RefusedError(403, "Requests from other sites are refused.")
    if method not in ("GET", "HEAD"):
        if headers.get("Origin", "").partition("://")[2].lower() != host.lower():
            raise RefusedError(403, "Requests from other sites are refused.")
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "Requests must be JSON.")
    check_body(headers)
