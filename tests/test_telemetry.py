"""Log lines are single lines with the name of their process."""

from __future__ import annotations

import logging

import pytest

from partibus.telemetry import Seldom, start_logging


def test_a_line_says_who_and_what_and_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("node-3")
    log = logging.getLogger("partibus.somewhere")
    log.info("entity made name=%s", "a\nERROR forged")
    log.debug("not asked for")
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "INFO node-3 partibus.somewhere: entity made name=a\\nERROR forged" in written
    logging.getLogger("partibus").handlers.clear()


def test_a_line_that_strangers_can_cause_is_written_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("elsewhere")
    seldom = Seldom(log, every_s=3600)
    for number in range(1000):
        seldom.warning("refused number=%d", number)
    assert caplog.messages == ["refused number=0 left_out=0"]
    always = Seldom(log, every_s=0)
    always.warning("refused")
    always.warning("refused")
    assert caplog.messages[1:] == ["refused left_out=0"] * 2
