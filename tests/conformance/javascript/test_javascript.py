"""@azure/service-bus, unmodified, does with partibus what its users do with Service Bus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROMISES = (
    "send-and-complete",
    "a-message-without-id-gets-one",
    "a-batch-arrives-whole",
    "abandon-counts-a-delivery",
    "dead-letter-with-a-reason",
    "defer-and-receive-by-number",
    "schedule-arrives-on-time",
    "cancel-what-is-scheduled",
    "peek-leaves-messages-alone",
    "renew-a-lock",
    "subscribe-gives-what-comes",
    "a-session-keeps-order-and-state",
    "the-next-session-that-has-messages",
    "rules-choose-messages",
    "an-unknown-queue-is-not-found",
    "a-topic-copies-by-its-rules",
    "an-administrator-makes-changes-and-deletes",
)


@pytest.fixture(scope="module")
def kept(
    prepare: Callable[[list[str], Path], None], run_program: Callable[..., dict[str, str]]
) -> dict[str, str]:
    prepare(["npm", "ci", "--no-audit", "--no-fund"], HERE)
    return run_program("javascript", ["node", "conformance.mjs"], HERE)


ADMINISTRATION = (
    "a-queue-lives",
    "topics-and-subscriptions-live",
    "rules-keep-their-filters",
    "the-namespace-says-what-it-is",
)


@pytest.fixture(scope="module")
def administered(
    prepare: Callable[[list[str], Path], None], run_program: Callable[..., dict[str, str]]
) -> dict[str, str]:
    prepare(["npm", "ci", "--no-audit", "--no-fund"], HERE)
    return run_program("javascript-admin", ["node", "administration.mjs"], HERE)


@pytest.mark.parametrize("kind", ["conventional", "partitioned"])
@pytest.mark.parametrize("promise", ADMINISTRATION)
def test_A3_the_javascript_administration_client_finds(
    administered: dict[str, str], kind: str, promise: str
) -> None:
    assert administered.get(f"{kind}/{promise}", "it was not tried") == ""


@pytest.mark.parametrize("kind", ["conventional", "partitioned"])
@pytest.mark.parametrize("promise", PROMISES)
def test_A3_the_javascript_client_finds(kept: dict[str, str], kind: str, promise: str) -> None:
    assert kept.get(f"{kind}/{promise}", "it was not tried") == ""
