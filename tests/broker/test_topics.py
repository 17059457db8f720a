"""What may be said about topics and subscriptions."""

from __future__ import annotations

import pytest

from partibus.broker.descriptions import read_stored, write_description
from partibus.broker.profiles import PROFILES
from partibus.broker.properties import InvalidDescription
from partibus.broker.topics import SubscriptionDescription, read_subscription, read_topic

EMULATOR = PROFILES["emulator"]


def test_what_the_vendors_sample_says_is_allowed() -> None:
    topic = read_topic(
        "t",
        {
            "DefaultMessageTimeToLive": "PT1H",
            "DuplicateDetectionHistoryTimeWindow": "PT20S",
            "RequiresDuplicateDetection": False,
        },
        EMULATOR,
    )
    assert (topic.KIND, topic.default_ttl_ms) == ("topic", 3_600_000)
    given = {"LockDuration": "PT1M", "MaxDeliveryCount": 3, "ForwardTo": ""}
    subscription = read_subscription("t", "s", given, EMULATOR)
    assert subscription.name == "t/Subscriptions/s"
    kept = read_stored(SubscriptionDescription, subscription.name, write_description(subscription))
    assert kept == subscription


def test_a_basic_namespace_has_no_topics() -> None:
    with pytest.raises(InvalidDescription, match="basic"):
        read_topic("t", {}, PROFILES["basic"])


def test_P7_a_premium_topic_is_partitioned_whatever_is_asked() -> None:
    asked = {"EnablePartitioning": False}
    assert read_topic("t", asked, PROFILES["premium"]).enable_partitioning


def test_a_subscription_has_the_limits_of_a_queue() -> None:
    with pytest.raises(InvalidDescription, match="LockDuration"):
        read_subscription("t", "s", {"LockDuration": "PT1S"}, EMULATOR)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 51, "a b"])
def test_a_subscription_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidDescription, match="Name"):
        read_subscription("t", name, {}, EMULATOR)


def test_a_disabled_subscription_still_collects_messages() -> None:
    disabled = read_subscription("t", "s", {"Status": "Disabled"}, EMULATOR)
    assert (disabled.allows_send, disabled.allows_receive) == (True, False)
