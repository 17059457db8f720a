"""What every store must do for topics: keep copies that share the content of a publication."""

from __future__ import annotations

from partibus.broker.records import Changes, Copy, FragmentKey, Publication
from partibus.store import Store
from partibus.testing.contracts import PLENTY, fields

TOPIC = 1
SUBSCRIPTIONS = (2, 3, 4)
PARTITION = 5
HIGH = PARTITION << 48


def published(position: int, content: bytes, kept: bytes = b"kept") -> Publication:
    """A message that a topic passes on."""
    return Publication(position, content, kept, 1, 0, "session", 1_000, HIGH | position)


def changes_of(number: int, *, created: bool) -> Changes:
    """Changes of the topic's fragment, or of a subscription's."""
    changes = Changes(number, FragmentKey(number, 1, PARTITION, 0), created)
    changes.shares = number != TOPIC
    return changes


def copied(changes: Changes, position: int, publication: Publication) -> Copy:
    """A copy, staged."""
    copy = Copy(position, HIGH | position, publication, 0)
    changes.added.append(copy)
    publication.copies.append((changes.number, position))
    return copy


def revised(copy: Copy, head: bytes, kept: bytes) -> None:
    """What an action does: another head before the same body, of which this much is kept."""
    body = copy.bare[2:]
    copy.bare, copy.kept, copy.kept_count, copy.shared = head + body, kept, 7, len(body)


def check_copies(store: Store) -> None:
    """Hold a new store to the contract."""
    topic = changes_of(TOPIC, created=True)
    one, other = published(1, b"first content"), published(3, b"second", b"")
    topic.published = [one, other]
    subscriptions = [changes_of(number, created=True) for number in SUBSCRIPTIONS]
    for changes in subscriptions:
        copied(changes, 1, one)
        copied(changes, 2, other)
    changed = copied(subscriptions[1], 3, one)
    revised(changed, b"A new head for ", b"other annotations")
    bare = copied(subscriptions[1], 4, other)
    revised(bare, b"", b"")
    bare.hops, bare.source = 2, "orders"
    # Copies may come before what they copy.
    store.commit([*subscriptions, topic])
    expected = {each.number: [fields(copy) for copy in each.added] for each in subscriptions}
    assert _all(store) == expected
    assert store.find(SUBSCRIPTIONS[1], [3])[0].bare == b"A new head for rst content"

    _changes_of_one_are_not_seen_by_others(store, expected)
    for number in SUBSCRIPTIONS:
        while not store.drop(number, 1):
            pass
    assert all(not found for found in _all(store).values())


def _changes_of_one_are_not_seen_by_others(
    store: Store, expected: dict[int, list[tuple[object, ...]]]
) -> None:
    first, second, third = SUBSCRIPTIONS
    modifying = changes_of(first, created=False)
    entry = store.find(first, [1])[0]
    entry.bare, entry.deliveries = b"modified by a receiver", 1
    modifying.rewritten = [entry]
    removing = changes_of(second, created=False)
    removing.removed = [1, 4]
    store.commit([modifying, removing])
    expected[first][0] = fields(entry)
    expected[second] = expected[second][1:3]
    assert _all(store) == expected
    last = changes_of(third, created=False)
    last.removed = [1, 2]
    store.commit([last])
    expected[third] = []
    assert _all(store) == expected


def _all(store: Store) -> dict[int, list[tuple[object, ...]]]:
    return {
        number: [fields(entry) for entry in store.scan(number, 0, 100, PLENTY)]
        for number in SUBSCRIPTIONS
    }
