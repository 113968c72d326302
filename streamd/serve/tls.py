"""TLS: from the `tls-*` settings to the context that accepts connections, and from a certificate to its user.

`make_context(config)` creates an `ssl.SSLContext`; it raises TlsError with a reason when the settings are invalid, and
the server keeps its current context. A context is never changed: CONFIG SET creates a new one.

Python's `ssl` cannot choose the TLS 1.3 ciphers before 3.15, nor the size of the session cache. For these, the OpenSSL
that Python itself has loaded is called directly (`openssl.py`), if its functions are accessible; otherwise the setting is
refused, or, for the session cache, left at its default.
"""

from __future__ import annotations

import ssl
import warnings
from typing import TYPE_CHECKING, Any

from streamd.errors import StreamdError

if TYPE_CHECKING:
    from streamd.serve.openssl import OpenSSL
    from streamd.settings.config import Config

__all__ = ["TlsError", "find_common_name", "make_client_context", "make_context"]


class TlsError(StreamdError):
    """The settings do not give a valid context; str() is the line to log."""


VERSIONS = {
    "tlsv1": ssl.TLSVersion.TLSv1,
    "tlsv1.1": ssl.TLSVersion.TLSv1_1,
    "tlsv1.2": ssl.TLSVersion.TLSv1_2,
    "tlsv1.3": ssl.TLSVersion.TLSv1_3,
}
"""The values of tls-protocols, oldest first."""
LEFT_OUT = {
    "tlsv1": ssl.OP_NO_TLSv1,
    "tlsv1.1": ssl.OP_NO_TLSv1_1,
    "tlsv1.2": ssl.OP_NO_TLSv1_2,
    "tlsv1.3": ssl.OP_NO_TLSv1_3,
}
USUAL_VERSIONS = {"tlsv1.2", "tlsv1.3"}
VERIFICATION = {"yes": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "no": ssl.CERT_NONE}
"""The verify mode for clients, by the values of tls-auth-clients."""


def make_context(config: Config) -> ssl.SSLContext:
    """The context for the settings; raises TlsError."""
    if not config.tls_cert_file:
        raise TlsError("No tls-cert-file configured!")
    if not config.tls_key_file:
        raise TlsError("No tls-key-file configured!")
    if config.tls_auth_clients != "no" and not config.tls_ca_cert_file and not config.tls_ca_cert_dir:
        raise TlsError(
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or"
            " tls-auth-clients are enabled!"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, config.tls_protocols)
    _load_certificate(context, config.tls_cert_file, config.tls_key_file, config.tls_key_file_pass)
    if config.tls_ca_cert_file or config.tls_ca_cert_dir:
        _load_authorities(context, config)
    context.verify_mode = VERIFICATION[config.tls_auth_clients]
    _set_ciphers(context, config)
    _set_sessions(context, config)
    return context


def make_client_context(config: Config) -> ssl.SSLContext:
    """The context for connections to other servers; raises TlsError.

    The peer's certificate must be signed by a trusted authority, whatever name it has, as with Redis. The own one is
    tls-client-cert-file if that is set, else tls-cert-file, else none.
    """
    if not config.tls_ca_cert_file and not config.tls_ca_cert_dir:
        raise TlsError(
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or"
            " tls-auth-clients are enabled!"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    _set_versions(context, config.tls_protocols)
    if config.tls_client_cert_file:
        key, password = config.tls_client_key_file, config.tls_client_key_file_pass
        _load_certificate(context, config.tls_client_cert_file, key, password)
    elif config.tls_cert_file:
        _load_certificate(context, config.tls_cert_file, config.tls_key_file, config.tls_key_file_pass)
    _load_authorities(context, config)
    _set_ciphers(context, config)
    return context


def _load_authorities(context: ssl.SSLContext, config: Config) -> None:
    try:
        context.load_verify_locations(config.tls_ca_cert_file or None, config.tls_ca_cert_dir or None)
    except OSError as error:
        raise TlsError(f"Failed to configure CA certificate(s) file/directory: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _set_versions(context: ssl.SSLContext, text: str) -> None:
    words = set(text.lower().split()) or USUAL_VERSIONS
    if not words.issubset(VERSIONS):
        raise TlsError(
            "Invalid tls-protocols specified. Use a combination of 'TLSv1', 'TLSv1.1', 'TLSv1.2' and 'TLSv1.3'."
        )
    wanted = [word for word in VERSIONS if word in words]
    names = list(VERSIONS)
    between = names[names.index(wanted[0]) : names.index(wanted[-1])]
    with warnings.catch_warnings():
        # Python warns about insecure old versions, and about leaving one out: the user has asked for it.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = VERSIONS[wanted[0]]
        context.maximum_version = VERSIONS[wanted[-1]]
        for word in between:
            if word not in words:
                context.options |= LEFT_OUT[word]


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
    # Without a password Python would prompt for one on the terminal.
    secret = password.encode("utf-8", "surrogateescape")
    for what, path in (("certificate", certificate), ("private key", key)):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise TlsError(f"Failed to load {what}: {path}: {_reason(error)}") from error
    try:
        context.load_cert_chain(certificate, key, lambda: secret)
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise TlsError(f"Failed to load {certificate} with {key}: {reason}") from error


def _set_ciphers(context: ssl.SSLContext, config: Config) -> None:
    if config.tls_prefer_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if config.tls_ciphers:
        try:
            context.set_ciphers(config.tls_ciphers)
        except ssl.SSLError as error:
            raise TlsError(f"Failed to configure ciphers: {config.tls_ciphers}") from error
    if config.tls_ciphersuites and not _openssl(context).set_ciphersuites(config.tls_ciphersuites):
        raise TlsError(f"Failed to configure ciphersuites: {config.tls_ciphersuites}")
    if config.tls_dh_params_file:
        try:
            context.load_dh_params(config.tls_dh_params_file)
        except OSError as error:
            raise TlsError(f"Failed to load {config.tls_dh_params_file}: {_reason(error)}") from error


def _openssl(context: ssl.SSLContext) -> OpenSSL:
    from streamd.serve.openssl import OpenSSL  # ctypes is for those who use TLS

    return OpenSSL(context)


def _set_sessions(context: ssl.SSLContext, config: Config) -> None:
    openssl = _openssl(context)
    if config.tls_session_caching:
        openssl.set_session_cache(config.tls_session_cache_size, config.tls_session_cache_timeout)
    else:
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        openssl.set_session_cache(None, 0)


def find_common_name(transport: Any) -> bytes | None:
    """The common name in the peer's verified certificate; None if there is none."""
    certificate = transport.get_extra_info("peercert") or {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value).encode("utf-8")
    return None
