"""What the commands `cert` and `env` tell, without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.runtime.authority import make_certificates
from partibus.runtime.endpoints import Endpoints, save_endpoints
from partibus.runtime.serving import prepare_catalog
from partibus.runtime.trust import authority_text, client_variables, describe_certificates
from partibus.store import StoreError
from partibus.store.directory import DataDirectory

NOW_MS = 1_800_000_000_000


def test_A4_the_authority_is_shown_and_exported_without_its_key(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"authority\.pem"):
        authority_text(tmp_path)
    make_certificates(tmp_path, ["broker.example"], NOW_MS)
    text = "\n".join(describe_certificates(tmp_path))
    assert "broker.example" in text
    assert "valid until: 2029-04-" in text
    assert authority_text(tmp_path).startswith(b"-----BEGIN CERTIFICATE-----")
    assert b"PRIVATE" not in authority_text(tmp_path)


def test_A4_clients_are_told_where_the_broker_is_and_whom_to_trust(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, stores=2)
    snapshot, _ = prepare_catalog(directory, None, NOW_MS)
    directory.release()
    with pytest.raises(StoreError, match="no broker serves"):
        client_variables(tmp_path)
    save_endpoints(tmp_path, Endpoints(host="localhost", port=1, http_port=2, tls_port=3))
    assert list(client_variables(tmp_path)) == [
        "SERVICEBUS_CONNECTION_STRING", "SERVICEBUS_TLS_CONNECTION_STRING",
    ]  # fmt: skip
    make_certificates(tmp_path, [], NOW_MS)
    told = client_variables(tmp_path)
    assert snapshot.rules_of()[0].primary_key in told["SERVICEBUS_CONNECTION_STRING"]
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        assert "BEGIN CERTIFICATE" in Path(told[name]).read_text()
