"""BrokerProperties: what is said comes back, unknown names are passed over, nonsense is refused."""

from __future__ import annotations

import json

import pytest

from partibus.broker.errors import InvalidArgument
from partibus.management.messages.broker_properties import (
    read_header,
    read_properties,
    write_properties,
)
from partibus.wire.message_parts import split

SAID = {
    "MessageId": "m",
    "CorrelationId": "c",
    "SessionId": "s",
    "Label": "l",
    "ReplyTo": "r",
    "ReplyToSessionId": "rs",
    "To": "t",
    "PartitionKey": "s",
    "TimeToLive": 1.5,
    "ScheduledEnqueueTimeUtc": "Sun, 06 Nov 2044 08:49:37 GMT",
}


def test_A2_what_is_said_comes_back() -> None:
    outline = read_header(json.dumps(SAID | {"Unknown": [1, 2]}))
    written = write_properties(split(outline.with_body(b"", 0)))
    assert written.items() >= SAID.items()
    assert "Unknown" not in written


@pytest.mark.parametrize(
    ("span", "ms"),
    [("PT30S", 30_000), ("00:00:05", 5_000), ("1.00:00:00", 86_400_000), ("P1D", 86_400_000)],
)
def test_a_batch_may_say_how_long_in_either_way(span: str, ms: int) -> None:
    assert read_properties({"TimeToLiveTimeSpan": span}).ttl_ms == ms


@pytest.mark.parametrize("span", ["soon", "00:00", "-1.00:00:00", "00:00:00", "a.00:00:01"])
def test_a_span_that_is_none_is_refused(span: str) -> None:
    with pytest.raises(InvalidArgument, match="TimeToLiveTimeSpan"):
        read_properties({"TimeToLiveTimeSpan": span})


def test_deep_json_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not JSON"):
        read_header("[" * 100_000)
