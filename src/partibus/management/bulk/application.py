"""The application properties of many messages at once, as Arrow's maps from text to text.

Usual ones have short names, each once, and simple values: the first property of all messages is
looked at together, then the second, and so on. All others go one by one through
`wire.message_contents`, which also says what is right.
"""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from partibus.management.bulk.contents import INT, Octets, number
from partibus.wire.codec import decode_all
from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import application_values, as_text
from partibus.wire.octets import SPANS, VARIABLE_8

MAPS = pa.map_(pa.string(), pa.string())
# Messages with more properties are not usual.
PAIRS_MAX = 16
_MAP_8, _MAP_32 = 0xC1, 0xD1
_TEXT_8 = 0xA1
# How long simple values are with their codes; 0: they are not simple, or say so themselves.
_WIDTHS = pa.array([span if span < VARIABLE_8 else 0 for span in SPANS], INT)
_NO_TEXT = pa.scalar(None, pa.string())


def text_maps(encoded: pa.Array) -> pa.Array:
    """Encoded maps as maps of text; empty for what is none."""
    found = encoded.dictionary_encode()
    each = _Maps(found.dictionary)
    try:
        maps = each.read()
    except (DecodeError, pa.ArrowInvalid):
        # Somewhere is a name that is no text, or a broken value.
        maps = _one_by_one(found.dictionary)
    return maps if len(maps) == len(encoded) else maps.take(found.indices)


class _Maps:
    """Encoded maps, of which each pair is found in all of them together."""

    def __init__(self, encoded: pa.Array) -> None:
        self._encoded = encoded
        raw = b"".join(encoded.to_pylist())
        self._octets = Octets(raw)
        ends = pc.cumulative_sum(pc.binary_length(encoded).cast(INT))
        self._begin = pc.subtract(ends, pc.binary_length(encoded).cast(INT))
        self._end = ends

    def read(self) -> pa.Array:
        """All as maps. Raises where a text is none or a value is broken."""
        is_usual, count, at = self._find_counts()
        names: list[pa.Array] = []
        values: list[pa.Array] = []
        for pair in range((pc.max(count).as_py() or 0) // 2):
            is_here = pc.and_(is_usual, pc.greater(count, number(2 * pair)))
            name_end = pc.add(pc.add(at, number(2)), self._octets.number(at, 1))
            place = self._octets.inside(name_end)
            end, is_simple = self._value_end(place)
            is_good = pc.and_(self._octets.has(at, _TEXT_8), pc.less_equal(end, self._end))
            is_good = pc.and_(is_good, is_simple)
            is_usual = pc.and_(is_usual, pc.or_(is_good, pc.invert(is_here)))
            is_here = pc.and_(is_here, is_good)
            names.append(self._between(pc.add(at, number(2)), place, is_here).cast(pa.string()))
            values.append(self._texts(place, end, is_here))
            at = pc.if_else(is_here, end, at)
        is_usual = pc.and_(is_usual, pc.equal(at, self._end))
        is_usual = self._without_twins(is_usual, count, names)
        return self._whole(is_usual, count, names, values)

    def _find_counts(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Where maps are usual, how many names and values they have, where these begin."""
        octets, begin, end = self._octets, self._begin, self._end
        is_short, is_map, after_size, after = octets.sized(begin, _MAP_8, _MAP_32)
        count = pc.if_else(is_short, octets.number(after_size), octets.number(after_size, 3))
        is_small = pc.or_(is_short, octets.begins(after_size, bytes(3)))
        first = pc.add(after_size, pc.if_else(is_short, number(1), number(4)))
        is_usual = pc.and_(pc.and_(is_map, is_small), pc.equal(after, end))
        is_usual = pc.and_(is_usual, pc.less_equal(first, end))
        is_even = pc.equal(pc.bit_wise_and(count, number(1)), number(0))
        is_few = pc.less_equal(count, number(2 * PAIRS_MAX))
        is_usual = pc.and_(is_usual, pc.and_(is_even, is_few))
        is_nothing = pc.equal(begin, end)
        count = pc.if_else(is_usual, count, number(0))
        return pc.or_(is_usual, is_nothing), count, pc.if_else(is_usual, first, end)

    def _value_end(self, place: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Where values end, and where they are simple."""
        octets = self._octets
        width = _WIDTHS.take(octets.number(place))
        is_fixed = pc.greater(width, number(0))
        _, is_text, _, text_end = octets.sized(place, _TEXT_8, _TEXT_8 | 0x10)
        end = pc.if_else(is_text, text_end, pc.add(place, width))
        return end, pc.or_(is_fixed, is_text)

    def _between(self, begin: pa.Array, end: pa.Array, is_here: pa.Array) -> pa.Array:
        """What lies there where something is, else nothing."""
        return self._octets.between(
            pc.if_else(is_here, begin, self._begin), pc.if_else(is_here, end, self._begin)
        )

    def _texts(self, place: pa.Array, end: pa.Array, is_here: pa.Array) -> pa.Array:
        """Values as text, null where there is none."""
        _, is_text, begin, _ = self._octets.sized(place, _TEXT_8, _TEXT_8 | 0x10)
        is_text = pc.and_(is_text, is_here)
        texts = self._between(begin, end, is_text).cast(pa.string())
        is_other = pc.and_(is_here, pc.invert(is_text))
        if not pc.any(is_other).as_py():
            return texts
        others = self._between(place, end, is_other).dictionary_encode()
        found = [
            as_text(decode_all(each)) if each else None for each in others.dictionary.to_pylist()
        ]
        return pc.if_else(is_text, texts, pa.array(found, pa.string()).take(others.indices))

    def _without_twins(
        self, is_usual: pa.Array, count: pa.Array, names: list[pa.Array]
    ) -> pa.Array:
        """Of several pairs with the same name the last one counts: let another see to that."""
        for at, one in enumerate(names):
            is_here = pc.greater(count, number(2 * at))
            for other in names[:at]:
                is_twin = pc.and_(is_here, pc.equal(one, other))
                is_usual = pc.and_(is_usual, pc.invert(is_twin))
        return is_usual

    def _whole(
        self, is_usual: pa.Array, count: pa.Array, names: list[pa.Array], values: list[pa.Array]
    ) -> pa.Array:
        size = len(self._encoded)
        pairs = [each // 2 for each in pc.if_else(is_usual, count, number(0)).to_pylist()]
        nothing = pa.array([], pa.string())
        order = pa.array(
            [place for at, many in enumerate(pairs) for place in range(at, many * size, size)],
            INT,
        )
        usual = pa.MapArray.from_arrays(
            pa.array(accumulate(pairs, initial=0), INT),
            pa.concat_arrays([nothing, *names]).take(order),
            pa.concat_arrays([nothing, *values]).take(order),
        ).cast(MAPS)
        odd = pc.indices_nonzero(pc.invert(is_usual))
        if not len(odd):
            return usual
        places = list(range(size))
        for at, place in enumerate(odd.to_pylist()):
            places[place] = size + at
        return pa.concat_arrays([usual, _one_by_one(self._encoded.take(odd))]).take(
            pa.array(places, INT)
        )


def _one_by_one(encoded: pa.Array) -> pa.Array:
    found: list[list[tuple[str, str | None]]] = []
    for each in encoded.to_pylist():
        try:
            found.append(list(application_values(each).items()))
        except DecodeError:
            found.append([])
    return pa.array(found, MAPS)
