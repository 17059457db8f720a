"""Log lines are single lines with the name of their process, for people or for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from partibus.telemetry import Rationed, Seldom, start_logging


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("partibus")]
    before = [(each, each.handlers, each.level, each.propagate) for each in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.usefixtures("logging_as_before")
def test_a_line_says_who_and_what_and_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("node-3")
    log = logging.getLogger("partibus.somewhere")
    log.info("entity made name=%s", "a\nERROR forged")
    log.debug("not asked for")
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "INFO node-3 partibus.somewhere: entity made name=a\\nERROR forged" in written


@pytest.mark.usefixtures("logging_as_before")
def test_a_line_for_programs_is_one_object_with_the_pairs_as_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start_logging("node-3", "debug", "json")
    log = logging.getLogger("partibus.somewhere")
    log.warning("store failed store=%d, 100%% sure error=%s: %s", 7, OSError("full\ndisk"), "why")
    log.debug("no fields")
    log.info("odd %(name)s", {"name": "one"})
    log.info("text=%s level=%s", "not", "taken over")
    logging.getLogger("asyncio").error("a library's")
    log.error("failed", exc_info=ValueError("broken"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    first = lines[0]
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning", "process": "node-3", "logger": "partibus.somewhere",
        "text": "store failed, 100% sure: why", "store": 7, "error": "full\ndisk",
    }  # fmt: skip
    texts = [line["text"] for line in lines[1:]]
    assert texts == ["no fields", "odd one", "text=not level=taken over", "a library's", "failed"]
    assert lines[4]["process"] == "node-3"
    assert "ValueError: broken" in lines[5]["exception"]


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


def test_refusals_are_logged_one_by_one_as_far_as_the_ration_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("elsewhere")
    caplog.set_level(logging.INFO, "elsewhere")
    rationed = Rationed(log, at_once=3, per_s=0.0001)
    for number in range(1000):
        rationed.info("refused number=%d", number)
    assert caplog.messages == [f"refused number={number}" for number in range(3)]
    caplog.clear()
    caplog.set_level(logging.DEBUG, "elsewhere")
    rationed.info("refused number=%d", 1000)
    assert caplog.messages == ["refusals not logged left_out=997", "refused number=1000"]
