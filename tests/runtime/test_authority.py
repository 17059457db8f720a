"""The certificates that are made at the first start, held against OpenSSL's own checks."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from partibus.config import ConfigurationError
from partibus.runtime.authority import make_certificates, names_in, read_certificate
from partibus.store import StoreError

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def test_A4_the_first_start_makes_certificates_for_this_machine_and_later_ones_keep_them(
    tmp_path: Path,
) -> None:
    server = make_certificates(tmp_path, ["Broker.example", "10.0.0.7"], NOW_MS)
    before = server.read_bytes()
    assert set(names_in(read_certificate(server))) == {
        "localhost", "127.0.0.1", "::1", "broker.example", "10.0.0.7",
    }  # fmt: skip
    assert make_certificates(tmp_path, ["10.0.0.7"], NOW_MS + DAY_MS).read_bytes() == before


def test_A4_a_new_name_or_the_end_coming_near_makes_a_new_one_of_the_same_authority(
    tmp_path: Path,
) -> None:
    server = make_certificates(tmp_path, [], NOW_MS)
    authority = (tmp_path / "tls" / "authority.pem").read_bytes()
    seen = {server.read_bytes()}
    make_certificates(tmp_path, ["other"], NOW_MS)
    seen.add(server.read_bytes())
    make_certificates(tmp_path, ["other"], NOW_MS + 800 * DAY_MS)
    seen.add(server.read_bytes())
    assert len(seen) == 3
    assert (tmp_path / "tls" / "authority.pem").read_bytes() == authority


def test_A4_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], NOW_MS)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes["server.pem"] == modes["authority-key.pem"] == 0o600
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert not any("PRIVATE" in (tmp_path / "tls" / name).read_text() for name in
                   ("authority.pem", "trusted.pem"))  # fmt: skip


def test_A4_what_the_system_trusts_is_trusted_beside_our_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], NOW_MS)
    ours = (tmp_path / "tls" / "authority.pem").read_text()
    trusted = tmp_path / "tls" / "trusted.pem"
    assert ours in trusted.read_text()
    system = ssl.create_default_context().cert_store_stats()["x509"]
    assert ssl.create_default_context(cafile=trusted).cert_store_stats()["x509"] >= min(system, 1)


def test_A4_a_crash_in_the_middle_is_made_good(tmp_path: Path) -> None:
    server = make_certificates(tmp_path, [], NOW_MS)
    for name in ("server.pem", "authority.pem"):
        (tmp_path / "tls" / name).unlink()
        make_certificates(tmp_path, [], NOW_MS)
        assert names_in(read_certificate(server))
    server.write_text("damaged")
    make_certificates(tmp_path, [], NOW_MS)
    assert names_in(read_certificate(server))


def test_A4_an_authority_that_clients_trust_is_never_replaced_silently(tmp_path: Path) -> None:
    make_certificates(tmp_path, [], NOW_MS)
    (tmp_path / "tls" / "authority-key.pem").unlink()
    make_certificates(tmp_path, [], NOW_MS)
    with pytest.raises(StoreError, match="put the key back"):
        make_certificates(tmp_path, ["new.example"], NOW_MS)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "ü", "a..b", "x" * 254])
def test_A4_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="--tls-name"):
        make_certificates(tmp_path, [name], NOW_MS)
