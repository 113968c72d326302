"""The catalog that holds an Iceberg table, as pyiceberg is configured for it and the table's description says.

If the archive lies in an object store, pyiceberg is given the settings that obstore takes from the environment (store.py),
unless it is configured otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config, merge_config

from streamd.archive.archive_errors import TableError
from streamd.archive.store import ENDPOINTS, ObjectPath, Place

__all__ = ["load"]

TIMEOUT_S = (10.0, 120.0)
"""How long to wait for a connection to a REST catalog, and for its answer. pyiceberg sets no limit, so an archiver would wait forever."""


def load(name: str, properties: Mapping[str, str], root: Place) -> Catalog:
    """The catalog of a name in pyiceberg's configuration, with these properties on top.

    root  of the archive
    Raises TableError when pyiceberg cannot reach the store that holds the archive, and what pyiceberg raises.
    """
    found: dict[str, Any] = {**merge_config(Config().get_catalog_config(name) or {}, dict(properties))}
    kind, uri = str(found.get("type", "")).lower(), str(found.get("uri", ""))
    is_rest = kind == "rest" or (not kind and uri.startswith("http"))
    if isinstance(root, ObjectPath):
        found = {**settings_of_store(root.scheme), **found}
        if not is_rest:  # which may hand out credentials of its own
            check_settings(root.scheme, found)
    if is_rest and uri and "py-catalog-impl" not in found:
        return load_rest(name, found)
    return load_catalog(name, **found)


def load_rest(name: str, properties: Mapping[str, Any]) -> Catalog:
    """A REST catalog whose methods raise OSError when it does not answer."""
    from pyiceberg.catalog.rest import RestCatalog  # 9 MB, which other catalogs do without

    class ImpatientRestCatalog(RestCatalog):
        def _create_session(self) -> Any:
            session = super()._create_session()
            session.request = partial(session.request, timeout=TIMEOUT_S)  # type: ignore[method-assign]
            return session

    return ImpatientRestCatalog(name, **properties)


# --- Object stores --------------------------------------------------------------------------------------------------------

PYARROW = "pyiceberg.io.pyarrow.PyArrowFileIO"

AZURE = {
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME", "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
    "adls.sas-token": "AZURE_STORAGE_SAS_TOKEN", "adls.client-id": "AZURE_CLIENT_ID",
    "adls.client-secret": "AZURE_CLIENT_SECRET", "adls.tenant-id": "AZURE_TENANT_ID",
}  # fmt: skip
"""The variable for each of pyiceberg's settings."""

GOOGLE_KEYS = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY")
"""Variables with credentials that obstore reads, and Google's own libraries do not."""


def settings_of_store(scheme: str) -> dict[str, str]:
    """The settings of a store in the environment, under pyiceberg's names, without credentials that its libraries find there."""
    endpoint = next((value for name in ENDPOINTS[scheme] if (value := os.environ.get(name))), None)
    if scheme == "s3":
        return {} if endpoint is None else {"s3.endpoint": endpoint}
    if scheme == "gs":
        return {} if endpoint is None else {"gcs.service.host": endpoint}
    # Without this, pyiceberg takes another library, adlfs, for Azure.
    found = {"py-io-impl": PYARROW, **{name: value for name, each in AZURE.items() if (value := os.environ.get(each))}}
    if endpoint is not None:
        address = urlsplit(endpoint)
        for kind in ("blob", "dfs"):
            found[f"adls.{kind}-storage-authority"] = address.netloc
            found[f"adls.{kind}-storage-scheme"] = address.scheme
    return found


def check_settings(scheme: str, found: Mapping[str, Any]) -> None:
    """Raise TableError when a catalog's settings do not suffice for a store. Google's library would try for minutes."""
    if scheme == "gs" and "gcs.oauth2.token" not in found and "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ:
        given = next((name for name in GOOGLE_KEYS if name in os.environ), None)
        if given is not None:
            raise TableError(
                f"pyiceberg does not read {given}: name a key file in GOOGLE_APPLICATION_CREDENTIALS, or configure gcs.oauth2.token"
            )
    if scheme == "az" and found.get("py-io-impl") == PYARROW and "adls.account-name" not in found:
        raise TableError(
            "pyiceberg must know the storage account: set AZURE_STORAGE_ACCOUNT_NAME, or adls.account-name"
        )
