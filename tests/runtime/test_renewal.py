"""The broker's own certificate is good for as long as the broker runs, whatever the years."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from partibus.runtime.authority import AUTHORITY_NAME, make_certificates, read_certificate
from partibus.runtime.renewal import Renewal, renewing
from partibus.runtime.tls import Tls

START_MS = 1_800_000_000_000
DAYS = 800


class Calendar:
    """Time that passes only while somebody waits, with a look at the certificate every day."""

    def __init__(self, certificate: Path) -> None:
        self.now_ms = START_MS
        self.certificate = certificate
        self.tls = Tls(certificate, certificate)
        self.renewals: list[int] = []

    def wait(self, seconds: float) -> bool:
        day = (self.now_ms - START_MS) // 86_400_000
        if self.tls.look():
            self.renewals.append(day)
        now = datetime.fromtimestamp(self.now_ms / 1000, UTC)
        shown = read_certificate(self.certificate)
        assert shown.not_valid_before_utc < now < shown.not_valid_after_utc - timedelta(days=30)
        self.now_ms += int(seconds * 1000)
        return day >= DAYS


def test_A4_the_certificate_is_renewed_in_time_while_the_broker_runs(tmp_path: Path) -> None:
    calendar = Calendar(make_certificates(tmp_path, ["broker.example"], START_MS))
    authority = (tmp_path / "tls" / AUTHORITY_NAME).read_bytes()
    Renewal(tmp_path, ["broker.example"], lambda: calendar.now_ms).run(calendar.wait)
    # Once in 800 days, 60 days before its end; who trusted the authority trusts it still.
    assert len(calendar.renewals) == 1
    assert 760 < calendar.renewals[0] < 770
    assert (tmp_path / "tls" / AUTHORITY_NAME).read_bytes() == authority
    issuer = read_certificate(tmp_path / "tls" / AUTHORITY_NAME)
    read_certificate(calendar.certificate).verify_directly_issued_by(issuer)


def test_A4_what_cannot_be_renewed_today_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = make_certificates(tmp_path, [], START_MS)
    before = certificate.read_bytes()
    key = tmp_path / "tls" / "authority-key.pem"
    kept = key.read_bytes()
    key.unlink()
    renewal = Renewal(tmp_path, [], lambda: START_MS + 800 * 86_400_000)
    with caplog.at_level(logging.ERROR):
        renewal.look()
    assert "certificate not renewed" in caplog.text
    assert certificate.read_bytes() == before
    key.write_bytes(kept)
    renewal.look()
    assert certificate.read_bytes() != before


def test_nobody_waits_a_day_for_the_end(tmp_path: Path) -> None:
    with renewing(Renewal(tmp_path, [], lambda: START_MS)):
        pass
