"""What a queue may be, what may change, and where its fragments lie."""

from __future__ import annotations

import dataclasses

import pytest

from partibus.broker.descriptions import (
    Entity,
    InvalidDescription,
    QueueDescription,
    check_description,
    fragments_of,
    read_queue,
    read_stored,
    revise_description,
    write_description,
)
from partibus.broker.durations import DAY_MS, FOREVER_MS
from partibus.broker.profiles import PROFILES, Profile, profile_of
from partibus.broker.topics import SubscriptionDescription, TopicDescription

STANDARD = PROFILES["standard"]


def partitioned(profile: Profile = STANDARD, **properties: object) -> QueueDescription:
    return read_queue("q", {"EnablePartitioning": True, **properties}, profile)


def test_a_queue_of_which_nothing_is_said_is_conventional_and_has_the_vendors_defaults() -> None:
    queue = read_queue("Orders", {}, STANDARD)
    assert queue == QueueDescription("Orders")
    assert (queue.lock_ms, queue.max_delivery_count) == (60_000, 10)
    assert (queue.default_ttl_ms, queue.duplicate_window_ms) == (FOREVER_MS, 600_000)
    assert not queue.enable_partitioning


def test_every_field_has_a_public_name() -> None:
    kinds = (QueueDescription, TopicDescription, SubscriptionDescription)
    named = {each.field for kind in kinds for each in kind.PROPERTIES}
    assert named == {each.name for each in dataclasses.fields(QueueDescription)} - {"name"}


def test_a_stored_queue_is_what_was_stored() -> None:
    queue = partitioned(LockDuration="PT30S", ForwardTo="sb://host/other", Status="SendDisabled")
    assert read_stored(QueueDescription, "q", write_description(queue)) == queue
    assert queue.forward_to == "other"


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"LockDuration": "PT1S"}, "LockDuration"),
        ({"LockDuration": "PT6M"}, "LockDuration"),
        ({"MaxDeliveryCount": 0}, "MaxDeliveryCount"),
        ({"DefaultMessageTimeToLive": "PT0.5S"}, "DefaultMessageTimeToLive"),
        ({"AutoDeleteOnIdle": "PT1M"}, "AutoDeleteOnIdle"),
        ({"DuplicateDetectionHistoryTimeWindow": "PT5S"}, "DuplicateDetectionHistoryTimeWindow"),
        ({"DuplicateDetectionHistoryTimeWindow": "P8D"}, "DuplicateDetectionHistoryTimeWindow"),
        ({"MaxSizeInMegabytes": 1000}, "MaxSizeInMegabytes"),
        ({"MaxMessageSizeInKilobytes": 1024}, "MaxMessageSizeInKilobytes"),
        ({"Status": "Deleting"}, "Status"),
        ({"ForwardTo": "a b"}, "ForwardTo"),
        ({"UserMetadata": "x" * 1025}, "UserMetadata"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(properties: dict[str, object], name: str) -> None:
    with pytest.raises(InvalidDescription) as refused:
        read_queue("q", properties, STANDARD)
    assert refused.value.property == name


def test_a_wrong_size_is_refused_with_the_sizes_there_are() -> None:
    with pytest.raises(InvalidDescription, match="1024, 2048, 3072, 4096, 5120"):
        partitioned(MaxSizeInMegabytes=6144)


@pytest.mark.parametrize("name", ["RequiresSession", "RequiresDuplicateDetection"])
def test_a_basic_namespace_has_no_sessions_and_no_duplicate_detection(name: str) -> None:
    with pytest.raises(InvalidDescription, match="profile basic"):
        read_queue("q", {name: True}, PROFILES["basic"])
    assert read_queue("q", {}, PROFILES["basic"]).default_ttl_ms == 14 * DAY_MS


@pytest.mark.parametrize(
    "name", ["EnablePartitioning", "RequiresSession", "RequiresDuplicateDetection"]
)
def test_what_is_chosen_at_creation_cannot_change(name: str) -> None:
    queue = read_queue("q", {}, STANDARD)
    with pytest.raises(InvalidDescription, match="cannot change") as refused:
        revise_description(queue, {name: True}, STANDARD, 1)
    assert refused.value.property == name
    assert revise_description(queue, {name: False}, STANDARD, 1) == queue


def test_a_revision_changes_what_it_names_and_nothing_else() -> None:
    queue = read_queue("q", {"MaxDeliveryCount": 3}, STANDARD)
    revised = revise_description(queue, {"LockDuration": "PT10S"}, STANDARD, 1)
    assert revised == dataclasses.replace(queue, lock_ms=10_000)


def test_a_client_may_send_back_the_multiplied_size_it_was_told() -> None:
    queue = partitioned(MaxSizeInMegabytes=3072)
    assert revise_description(queue, {"MaxSizeInMegabytes": 49152}, STANDARD, 16) == queue
    assert revise_description(queue, {"MaxSizeInMegabytes": 4096}, STANDARD, 16).max_size_mb == 4096


def test_a_queue_made_under_other_limits_can_still_be_revised() -> None:
    big = dataclasses.replace(read_queue("q", {}, STANDARD), max_size_mb=81920)
    assert revise_description(big, {"MaxDeliveryCount": 2}, STANDARD, 1).max_size_mb == 81920


def test_a_description_made_by_hand_is_checked_before_it_is_kept() -> None:
    with pytest.raises(InvalidDescription, match="LockDuration"):
        check_description(QueueDescription("q", lock_ms=1), STANDARD)


def test_five_gigabytes_in_sixteen_fragments_are_reported_as_eighty() -> None:
    queue = partitioned(MaxSizeInMegabytes=5120)
    entity = Entity(1, 1, "q", queue, fragments_of(queue, STANDARD), home=3)
    assert entity.reported_size_mb == 81920


def test_every_entity_of_a_premium_namespace_is_partitioned() -> None:
    premium = profile_of("premium")
    for said in ({}, {"EnablePartitioning": False}, {"EnablePartitioning": True}):
        queue = read_queue("q", said, premium)
        assert fragments_of(queue, premium) == 2
    assert read_queue("q", {"MaxSizeInMegabytes": 81920}, premium).max_message_bytes == 1024 * 1024


def test_with_one_fragment_a_premium_namespace_partitions_nothing() -> None:
    single = profile_of("premium", 1)
    assert not partitioned(single).enable_partitioning


def test_fragments_of_one_entity_lie_in_different_stores() -> None:
    queue = partitioned()
    entity = Entity(5, 1, "q", queue, 16, home=5)
    assert list(entity.partitions) == list(range(1, 17))
    assert sorted(entity.store_of(each, 16) for each in entity.partitions) == list(range(16))
    assert entity.store_of(1, 16) == 5


def test_a_conventional_entity_has_one_fragment_numbered_zero() -> None:
    entity = Entity(7, 1, "q", QueueDescription("q"), 1, home=7)
    assert list(entity.partitions) == [0]
    assert entity.store_of(0, 4) == 3


@pytest.mark.parametrize(
    ("status", "send", "receive"),
    [
        ("Active", True, True),
        ("SendDisabled", False, True),
        ("ReceiveDisabled", True, False),
        ("Disabled", False, False),
    ],
)
def test_the_status_says_what_goes_in_and_out(status: str, send: bool, receive: bool) -> None:
    queue = QueueDescription("q", status=status)
    assert (queue.allows_send, queue.allows_receive) == (send, receive)
