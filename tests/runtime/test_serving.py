"""Bringing a namespace up: what is made, what is said, and what is refused before it starts."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from partibus.broker.access import ALL_RIGHTS
from partibus.config import ConfigurationError, ServeSettings, parse_configuration
from partibus.runtime.endpoints import Endpoints
from partibus.runtime.serving import (
    AddressUnavailable,
    announce,
    certificate_files,
    hop_addresses,
    listening_socket,
    new_key,
    prepare_catalog,
    public_host,
)
from partibus.store.directory import DataDirectory

NOW_MS = 1_700_000_000_000
FILE = b"""{"UserConfig": {"Namespaces": [{"Name": "ns",
  "Queues": [{"Name": "q", "Properties": {"RequiresSession": true}}],
  "Topics": [{"Name": "t"}]}]}}"""


def test_the_first_start_makes_a_root_key_that_later_starts_keep(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, stores=2)
    first, _ = prepare_catalog(directory, None, NOW_MS)
    again, _ = prepare_catalog(directory, None, NOW_MS)
    directory.release()
    (root,) = first.rules_of()
    assert (root.name, root.rights) == ("RootManageSharedAccessKey", ALL_RIGHTS)
    assert root.primary_key != root.secondary_key
    assert again.rules_of() == (root,)
    assert first.settings.namespace_id == directory.layout.identity


def test_a_key_is_base64_of_32_bytes() -> None:
    assert len(new_key()) == 44
    assert len(base64.b64decode(new_key(), validate=True)) == 32


def test_what_the_configuration_declares_is_there(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, stores=2)
    snapshot, applied = prepare_catalog(directory, parse_configuration(FILE), NOW_MS)
    directory.release()
    assert snapshot.find("q")
    assert applied is not None
    assert applied.created == ("q", "t")


def test_a_wrong_configuration_leaves_no_catalog_behind(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, stores=2)
    wrong = parse_configuration(FILE.replace(b'"q"', b'"a b"'))
    with pytest.raises(ConfigurationError):
        prepare_catalog(directory, wrong, NOW_MS)
    directory.release()
    assert not (tmp_path / "catalog.sqlite").exists()


def test_a_port_in_use_is_refused_by_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressUnavailable, match=f"port {port} .* in use"):
            listening_socket("127.0.0.1", port).__enter__()


def test_a_host_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AddressUnavailable, match="nowhere"):
        listening_socket("nowhere.invalid", 0).__enter__()


def test_nodes_reach_each_other_also_from_a_very_deep_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    for data in (tmp_path, deep):
        with hop_addresses(data, 3) as addresses:
            paths = [address.removeprefix("unix:") for address in addresses]
            assert len(set(paths)) == 3
            assert all(len(path) <= 100 for path in paths)
    with hop_addresses(tmp_path, 1) as addresses:
        assert addresses == ()


def test_A4_a_certificate_is_made_once_and_an_own_one_is_used_instead(tmp_path: Path) -> None:
    made, key = certificate_files(ServeSettings(tmp_path), NOW_MS)
    assert made == key == tmp_path / "tls" / "server.pem"
    assert certificate_files(ServeSettings(tmp_path), NOW_MS) == (made, key)
    own = ServeSettings(tmp_path / "other", tls_cert=made, tls_key=made)
    assert certificate_files(own, NOW_MS) == (made, made)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "settings", [{"tls_key": Path("key")}, {"tls_cert": Path("none")}, {"tls_cert": Path(__file__)}]
)
def test_A4_a_certificate_that_is_none_is_refused_before_anything_starts(
    tmp_path: Path, settings: dict[str, Path]
) -> None:
    with pytest.raises(ConfigurationError, match="--tls-"):
        certificate_files(ServeSettings(tmp_path, **settings), NOW_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "said"),
    [("0.0.0.0", "localhost"), ("::", "localhost"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")],
)
def test_clients_are_told_a_host_they_can_reach(host: str, said: str) -> None:
    assert public_host(host) == said


def test_the_last_word_is_ready(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, stores=2)
    snapshot, _ = prepare_catalog(directory, parse_configuration(FILE), NOW_MS)
    directory.release()
    said: list[str] = []
    settings = ServeSettings(tmp_path, dev=True)
    endpoints = Endpoints(host="127.0.0.1", port=5672, http_port=5300, tls_port=5671)
    announce(settings, snapshot, endpoints, said.append)
    (root,) = snapshot.rules_of()
    text = "\n".join(said)
    assert (
        "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={root.primary_key};UseDevelopmentEmulator=true;" in text
    )
    assert (
        "Endpoint=sb://127.0.0.1:5671;SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={root.primary_key};\n" in text
    )
    assert "SharedAccessKey=SAS_KEY_VALUE;" in text
    assert "not served yet" not in text
    assert "duplicate detection" not in text
    assert str(tmp_path) in text
    assert said[-1] == "ready"
