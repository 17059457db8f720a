"""Certificates are taken up and renewed while the broker runs."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from partibus.config import ConfigurationError
from partibus.runtime.authority import make_certificates
from partibus.runtime.tls import Tls, make_context

NOW_MS = 1_800_000_000_000


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificates(tmp_path, [], NOW_MS)


def test_A4_a_changed_certificate_is_shown_to_the_next_connection(
    tmp_path: Path, certificate: Path
) -> None:
    tls = Tls(certificate, certificate)
    before = tls.context()
    assert not tls.look()
    make_certificates(tmp_path, ["new.example"], NOW_MS)
    assert tls.look()
    assert tls.context() is not before
    assert not tls.look()


def test_A4_files_that_are_no_good_leave_the_old_certificate_in_force(certificate: Path) -> None:
    tls = Tls(certificate, certificate)
    before, good = tls.context(), certificate.read_bytes()
    certificate.write_text("half of it")
    assert not tls.look()
    certificate.unlink()
    assert not tls.look()
    assert tls.context() is before
    certificate.write_bytes(good)
    assert tls.look()


def test_A4_nothing_older_than_tls_1_2_is_spoken(certificate: Path) -> None:
    assert make_context(certificate, certificate).minimum_version == ssl.TLSVersion.TLSv1_2


def test_A4_a_locked_key_is_refused_and_nobody_is_asked_for_its_password(
    tmp_path: Path, certificate: Path
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    locked = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(os.urandom(8).hex().encode()),
    )
    key = tmp_path / "locked.pem"
    key.write_bytes(locked)
    with pytest.raises(ConfigurationError, match="are not a certificate and its key"):
        make_context(certificate, key)
