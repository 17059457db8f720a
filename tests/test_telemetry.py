"""Log lines are single lines with the name of their process."""

from __future__ import annotations

import logging

import pytest

from partibus.telemetry import start_logging


def test_a_line_says_who_and_what_and_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("node-3")
    log = logging.getLogger("partibus.somewhere")
    log.info("entity made name=%s", "a\nERROR forged")
    log.debug("not asked for")
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "INFO node-3 partibus.somewhere: entity made name=a\\nERROR forged" in written
    logging.getLogger("partibus").handlers.clear()
