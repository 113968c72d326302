"""The catalog that holds an Iceberg table, as pyiceberg is configured for it and the table's description says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config, merge_config

__all__ = ["load"]

TIMEOUT_S = (10.0, 120.0)
"""How long to wait for a connection to a REST catalog, and for its answer. pyiceberg sets no limit, so an archiver would wait forever."""


class ImpatientRestCatalog(RestCatalog):
    """Raises OSError when the catalog does not answer."""

    def _create_session(self) -> Any:
        session = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUT_S)  # type: ignore[method-assign]
        return session


def load(name: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog of a name in pyiceberg's configuration, with these properties on top. Raises what pyiceberg raises."""
    found: dict[str, Any] = {**merge_config(Config().get_catalog_config(name) or {}, dict(properties))}
    kind, uri = str(found.get("type", "")).lower(), str(found.get("uri", ""))
    is_rest = kind == "rest" or (not kind and uri.startswith("http"))
    if is_rest and uri and "py-catalog-impl" not in found:
        return ImpatientRestCatalog(name, **found)
    return load_catalog(name, **properties)
