"""OpenSSL: what Python's `ssl` does not offer, called in the library that it is linked with."""

from __future__ import annotations

import ctypes
import ssl
from typing import Any

__all__ = ["OpenSSL"]


class OpenSSL:
    """OpenSSL calls that Python's `ssl` does not offer, for one context."""

    SET_CACHE_SIZE, SET_CACHE_MODE = 42, 44  # SSL_CTRL_SET_SESS_CACHE_*
    CACHE_OFF, CACHE_SERVER = 0, 2

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._library: Any = None
        try:
            import _ssl

            library = ctypes.CDLL(_ssl.__file__)
            for name in ("SSL_CTX_set_ciphersuites", "SSL_CTX_ctrl", "SSL_CTX_set_timeout"):
                getattr(library, name)
        except (ImportError, AttributeError, OSError):
            return  # OpenSSL is linked into Python, and its functions cannot be found
        self._library = library

    @property
    def _pointer(self) -> ctypes.c_void_p:
        """The SSL_CTX: the first field of the object, after the header of every object."""
        return ctypes.c_void_p.from_address(id(self._context) + object.__basicsize__)

    def set_ciphersuites(self, text: str) -> bool:
        """Choose the ciphers of TLS 1.3; False if that is not possible."""
        if hasattr(self._context, "set_ciphersuites"):
            try:
                self._context.set_ciphersuites(text)
            except ssl.SSLError:
                return False
            return True
        if self._library is None:
            return False
        return bool(self._library.SSL_CTX_set_ciphersuites(self._pointer, text.encode("utf-8", "surrogateescape")))

    def set_session_cache(self, size: int | None, timeout_s: int) -> None:
        """Cache `size` sessions (0: no limit) for `timeout_s` seconds; None disables the cache."""
        if self._library is None:
            return
        control = self._library.SSL_CTX_ctrl
        control.restype = ctypes.c_long
        control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)
        mode = self.CACHE_OFF if size is None else self.CACHE_SERVER
        control(self._pointer, self.SET_CACHE_MODE, mode, None)
        if size is not None:
            control(self._pointer, self.SET_CACHE_SIZE, size, None)
            self._library.SSL_CTX_set_timeout(self._pointer, ctypes.c_long(timeout_s))
