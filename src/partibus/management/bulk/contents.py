"""Takes the contents of thousands of messages apart at once, with Arrow's functions.

Usual messages have short or long properties with a text for an id or none, perhaps application
properties, and one data section. All of them are looked at together, octet by octet; each of the
others goes through `wire.message_contents`, which also says what is right: there must be no
difference between the two ways.
"""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.compute as pc

from partibus.wire.errors import DecodeError
from partibus.wire.message_contents import Parts, parts

# What is looked at behind the last octet of a message at most.
_PADDING = bytes(32)
# What places are counted in.
INT = pa.int32()
_LIST_0, _LIST_8, _LIST_32 = 0x45, 0xC0, 0xD0
_MAP_8, _MAP_32 = 0xC1, 0xD1
_DATA_8, _DATA_32 = 0xA0, 0xB0
_NULL, _TEXT_8 = 0x40, 0xA1
_PROPERTIES, _APPLICATION, _DATA = b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75"


@functools.cache
def number(value: int) -> pa.Scalar:
    """A number to reckon with arrays of places."""
    return pa.scalar(value, INT)


@functools.cache
def _octet(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint8())


class Octets:
    """Octets of which many places are looked at together. Places are arrays of int32."""

    def __init__(self, octets: bytes) -> None:
        self.raw = octets
        padded = octets + _PADDING
        self._last = pa.scalar(len(octets), INT)
        self._buffer = pa.py_buffer(padded)
        self._values = pa.Array.from_buffers(pa.uint8(), len(padded), [None, self._buffer])

    def inside(self, places: pa.Array) -> pa.Array:
        """The same places, but for those to which a broken message points."""
        return pc.min_element_wise(places, self._last)

    def at(self, places: pa.Array, further: int = 0) -> pa.Array:
        """The octet at each place, or a few further on."""
        return self._values.take(pc.add(places, number(further)) if further else places)

    def number(self, places: pa.Array, further: int = 0) -> pa.Array:
        """The octet at each place as a number to reckon with."""
        return self.at(places, further).cast(INT)

    def has(self, places: pa.Array, code: int, further: int = 0) -> pa.Array:
        """Where this octet is."""
        return pc.equal(self.at(places, further), _octet(code))

    def begins(self, places: pa.Array, octets: bytes) -> pa.Array:
        """Where these octets are."""
        found = self.has(places, octets[-1], len(octets) - 1)
        for at, code in enumerate(octets[:-1]):
            found = pc.and_(found, self.has(places, code, at))
        return found

    def sized(
        self, places: pa.Array, short: int, long: int
    ) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
        """Of values with these two codes: where it is the short one; where it is either; the
        place behind the size; the place behind all. Sizes beyond 2^24 are not understood.
        """
        is_short = self.has(places, short)
        after_short = pc.add(places, number(2))
        size_short = self.number(places, 1)
        if pc.all(is_short).as_py():
            return is_short, is_short, after_short, pc.add(after_short, size_short)
        is_long = pc.and_(self.has(places, long), self.has(places, 0, 1))
        size = pc.add(
            pc.add(
                pc.shift_left(self.number(places, 2), number(16)),
                pc.shift_left(self.number(places, 3), number(8)),
            ),
            self.number(places, 4),
        )
        after = pc.if_else(is_short, after_short, pc.add(places, number(5)))
        end = pc.add(after, pc.if_else(is_short, size_short, size))
        return is_short, pc.or_(is_short, is_long), after, end

    def between(self, begin: pa.Array, end: pa.Array) -> pa.Array:
        """What lies between each two places; all of them in order."""
        if not len(begin):
            return pa.array([], pa.binary())
        weave, even = _woven(len(begin))
        # What we want and what is between takes turns; then every other is taken.
        places = pa.concat_arrays([begin, end]).take(weave)
        whole = pa.Array.from_buffers(
            pa.binary(), len(places) - 1, [None, places.buffers()[1], self._buffer]
        )
        return whole.take(even)


@functools.lru_cache(maxsize=4)
def _woven(count: int) -> tuple[pa.Array, pa.Array]:
    """The order that takes from two arrays in turn; and the even numbers."""
    weave = [place for at in range(count) for place in (at, count + at)]
    return pa.array(weave, INT), pa.array(range(0, 2 * count, 2), INT)


class Contents:
    """The parts of many bare messages. `begin` and `end` say where each of them lies."""

    def __init__(self, octets: Octets, begin: pa.Array, end: pa.Array) -> None:
        """The messages must lie in order."""
        self._octets, self._begin, self._end = octets, begin, end
        self._find()

    def __len__(self) -> int:
        return len(self._begin)

    def _find(self) -> None:
        """Find the parts of the usual ones, and take the others one by one."""
        octets, begin, end = self._octets, self._begin, self._end
        is_usual, at = self._find_properties(begin, end)
        has_application = octets.begins(at, _APPLICATION)
        self._application = at, at
        if pc.any(has_application).as_py():
            place = pc.add(at, number(3))
            _, is_map, _, after = octets.sized(place, _MAP_8, _MAP_32)
            is_map = pc.and_(is_map, pc.less_equal(after, end))
            is_usual = pc.and_(is_usual, pc.or_(pc.invert(has_application), is_map))
            self._application = (
                pc.if_else(has_application, place, at),
                pc.if_else(has_application, after, at),
            )
            at = octets.inside(self._application[1])
        _, is_data, body, after = octets.sized(pc.add(at, number(3)), _DATA_8, _DATA_32)
        is_data = pc.and_(is_data, octets.begins(at, _DATA))
        is_usual = pc.and_(is_usual, pc.and_(is_data, pc.equal(after, end)))
        self._body = body, end
        self._odd = pc.invert(is_usual)
        self._add_bad_ids()
        self._parts = [self._part(at) for at in pc.indices_nonzero(self._odd).to_pylist()]

    def _find_properties(self, begin: pa.Array, end: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Where they are usual, and where what follows them begins."""
        octets = self._octets
        is_there = octets.begins(begin, _PROPERTIES)
        place = pc.add(begin, number(3))
        is_short, is_list, after_size, after = octets.sized(place, _LIST_8, _LIST_32)
        # A long list's number of fields is long, too.
        first = pc.add(after_size, pc.if_else(is_short, number(1), number(4)))
        is_list = pc.and_(pc.and_(is_there, is_list), pc.less_equal(after, end))
        if not pc.all(is_short).as_py():
            count = pc.if_else(is_short, octets.at(after_size), octets.at(after_size, 3))
            is_small = pc.if_else(is_short, True, octets.begins(after_size, bytes(3)))
            is_list = pc.and_(is_list, is_small)
        else:
            count = octets.at(after_size)
        room = pc.subtract(after, place)
        count = count.cast(INT)
        is_list = pc.and_(is_list, pc.greater(count, number(0)))
        is_list = pc.and_(is_list, pc.less_equal(count, room))
        has_id = pc.and_(is_list, octets.has(first, _TEXT_8))
        has_none = pc.and_(is_list, octets.has(first, _NULL))
        after_id = pc.add(
            first, pc.if_else(has_id, pc.add(octets.number(first, 1), number(2)), number(1))
        )
        is_whole = pc.and_(pc.or_(has_id, has_none), pc.less_equal(after_id, after))
        is_empty = pc.and_(is_there, octets.has(place, _LIST_0))
        is_usual = pc.or_(pc.or_(is_whole, is_empty), pc.invert(is_there))
        # Messages without properties, or with none in them, have nothing here.
        at = pc.if_else(is_empty, pc.add(begin, number(4)), begin)
        at = octets.inside(pc.if_else(is_whole, after, at))
        self._has_id = pc.and_(has_id, is_whole)
        self._id = (
            pc.if_else(self._has_id, pc.add(first, number(2)), begin),
            pc.if_else(self._has_id, after_id, begin),
        )
        self._rest = pc.if_else(is_whole, after_id, at), at
        return is_usual, at

    def _add_bad_ids(self) -> None:
        """Ids that are no text are not usual."""
        ids = self._usual(self._id)
        try:
            ids.cast(pa.string())
        except pa.ArrowInvalid:
            bad = pa.array([not _is_text(each) for each in ids.to_pylist()])
            self._odd = pc.or_(self._odd, bad)

    def _part(self, at: int) -> Parts:
        bare = self._octets.raw[self._begin[at].as_py() : self._end[at].as_py()]
        try:
            return parts(bare)
        except DecodeError:
            # It was accepted, so it is shown: as the octets that came.
            return None, b"", b"", bare

    def _usual(self, place: tuple[pa.Array, pa.Array]) -> pa.Array:
        begin, end = place
        if pc.any(self._odd).as_py():
            begin = pc.if_else(self._odd, self._begin, begin)
            end = pc.if_else(self._odd, self._begin, end)
        return self._octets.between(begin, end)

    def _column(self, place: tuple[pa.Array, pa.Array], part: int) -> pa.Array:
        found = self._usual(place)
        if not self._parts:
            return found
        others = pa.array([each[part] for each in self._parts], pa.binary())
        return pc.replace_with_mask(found, self._odd, others)

    def message_ids(self) -> pa.Array:
        """The ids as text; null where there is none."""
        found = self._usual(self._id).cast(pa.string())
        if not pc.all(self._has_id).as_py():
            found = pc.if_else(self._has_id, found, pa.scalar(None, pa.string()))
        if not self._parts:
            return found
        others = pa.array([each[0] for each in self._parts], pa.string())
        return pc.replace_with_mask(found, self._odd, others)

    def properties(self) -> pa.Array:
        """The encoded properties behind the id."""
        return self._column(self._rest, 1)

    def application(self) -> pa.Array:
        """The encoded application properties; empty where there are none."""
        return self._column(self._application, 2)

    def bodies(self) -> pa.Array:
        """What the data sections hold."""
        return self._column(self._body, 3)


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
