"""The AMQP types that Python lacks, as thin subclasses of what it has.

Decoding yields these types and encoding looks at nothing else, so a value keeps its AMQP type on
the way through: a correlation-id leaves as the uuid, ulong or string the message-id came as.
Where Python has the type it is used: None, bool, str, bytes, list, dict, uuid.UUID, float (double).
A plain int is a long.
"""

from __future__ import annotations

from dataclasses import dataclass


class Symbol(str):
    """A symbolic name; compares and hashes as the str it is."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class UByte(int):
    """An unsigned 8-bit integer."""

    __slots__ = ()


class UShort(int):
    """An unsigned 16-bit integer."""

    __slots__ = ()


class UInt(int):
    """An unsigned 32-bit integer."""

    __slots__ = ()


class ULong(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class Byte(int):
    """A signed 8-bit integer."""

    __slots__ = ()


class Short(int):
    """A signed 16-bit integer."""

    __slots__ = ()


class Int(int):
    """A signed 32-bit integer."""

    __slots__ = ()


class Long(int):
    """A signed 64-bit integer."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 in UTC, signed 64-bit."""

    __slots__ = ()


class Float(float):
    """A 32-bit floating point number; a plain float is a double."""

    __slots__ = ()


class Decimal32(bytes):
    """A decimal in its four encoded bytes; nobody here computes with it."""

    __slots__ = ()


class Decimal64(bytes):
    """A decimal in its eight encoded bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """A decimal in its sixteen encoded bytes."""

    __slots__ = ()


class Array(list[object]):
    """A list of values of one AMQP type; `element_type` is the Python class of that type.

    `descriptor` is there for arrays of described values: it stands once, before all elements.
    """

    __slots__ = ("descriptor", "element_type")

    def __init__(self, items: list[object], element_type: type, descriptor: object = None) -> None:
        super().__init__(items)
        self.element_type = element_type
        self.descriptor = descriptor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (
            list.__eq__(self, other)
            and self.element_type is other.element_type
            and self.descriptor == other.descriptor
        )

    __hash__ = None


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that says what it means."""

    descriptor: object
    value: object
