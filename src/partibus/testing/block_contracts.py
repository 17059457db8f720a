"""What every store promises of blocks: written in bulk, they are entries like all others."""

from __future__ import annotations

from partibus.broker.appending import entries_of
from partibus.broker.blocks import Block, arrange, kept_part
from partibus.store import Store
from partibus.testing.contracts import PLENTY, fields, made_changes, made_entry

_PARTITION = 5
_HIGH = _PARTITION << 48
_NOW_MS = 1_700_000_000_000
# More than one bundle.
_COUNT = 150


def check_blocks(store: Store) -> None:
    """Hold an empty store to the promises."""
    changes = made_changes(4, created=True, partition=_PARTITION)
    contents = [b"kept" * (n % 3) + b"bare %d" % n for n in range(_COUNT)]
    parts = [kept_part(4 * (n % 3), n % 3) for n in range(_COUNT)]
    block = Block(arrange(map(len, contents), parts), b"".join(contents))
    block.position, block.enqueued_ms = 3, _NOW_MS
    mortal = Block(arrange([5], [0]), b"short")
    mortal.position, mortal.enqueued_ms, mortal.expires_ms = _COUNT + 4, _NOW_MS, _NOW_MS + 9
    changes.added = [made_entry(p, _PARTITION) for p in (1, 2, _COUNT + 3)]
    changes.blocks = [block, mortal]
    store.commit([changes])
    entries = changes.added + entries_of(block, _HIGH) + entries_of(mortal, _HIGH)
    expected = [fields(each) for each in sorted(entries, key=lambda each: each.position)]
    assert [fields(each) for each in store.scan(4, 0, 1000, PLENTY)] == expected
    assert [fields(each) for each in store.browse(4, _HIGH + 60, 20, PLENTY)] == expected[59:79]
    assert [fields(each) for each in store.find(4, [64, 66, 67])] == [
        expected[at] for at in (63, 65, 66)
    ]
    later = made_changes(4, created=False, partition=_PARTITION)
    later.removed = list(range(1, _COUNT))
    store.commit([later])
    assert [fields(each) for each in store.scan(4, 0, 1000, PLENTY)] == expected[_COUNT - 1 :]
