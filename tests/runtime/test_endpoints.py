"""Where a namespace is served, as other commands learn it."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.runtime.endpoints import (
    FILE_NAME,
    Endpoints,
    forget_endpoints,
    load_endpoints,
    save_endpoints,
)
from partibus.store import StoreError

ENDPOINTS = Endpoints(host="localhost", port=5672, http_port=5300, tls_port=5671)


def test_endpoints_are_there_while_they_are_served(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no broker serves"):
        load_endpoints(tmp_path)
    save_endpoints(tmp_path, ENDPOINTS)
    assert load_endpoints(tmp_path) == ENDPOINTS
    forget_endpoints(tmp_path)
    forget_endpoints(tmp_path)
    with pytest.raises(StoreError, match="no broker serves"):
        load_endpoints(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.raises(StoreError, match=FILE_NAME):
        load_endpoints(tmp_path)


def test_A4_the_string_for_tls_names_the_port_for_tls_or_the_one_for_everything() -> None:
    assert "UseDevelopmentEmulator=true;" in ENDPOINTS.connection_string("k")
    assert ENDPOINTS.tls_connection_string("k") == (
        "Endpoint=sb://localhost:5671;"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=k;"
    )
    one = Endpoints(host="localhost", port=1, http_port=2)
    assert "sb://localhost:1;" in one.tls_connection_string("k")
