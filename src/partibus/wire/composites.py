"""How composite types (performatives, outcomes, termini) are declared, encoded and decoded.

Decoding is lenient: trailing fields may be missing and descriptors may be symbols. Encoding is
what the strictest client needs: descriptors are smallulongs, and what clients index by position
(performatives, termini, errors) has all its fields, null where nothing is to be said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar, dataclass_transform

from partibus.wire.codec import decode, encode, encode_list
from partibus.wire.errors import DecodeError, EncodeError
from partibus.wire.values import Array, Described, Symbol, UByte, UInt, ULong, UShort

_ERROR: Final = 0x1D
_TERMINI: Final = (0x28, 0x29, 0x30)
_BY_CODE: dict[int, type[Any]] = {}
_CODE_BY_NAME: dict[str, int] = {}
_CODE: dict[type[Any], int] = {}
_FIELD_TYPES: dict[type[Any], list[tuple[str, str]]] = {}

_T = TypeVar("_T")


def of(amqp_type: str, *, default: object) -> Any:
    """A field of a composite: its AMQP type, and its value where the peer leaves it out."""
    return field(default=default, metadata={"type": amqp_type})


@dataclass_transform(field_specifiers=(of,))
def composite(code: int, name: str) -> Callable[[type[_T]], type[_T]]:
    """Declare a class as the composite type with this descriptor, numeric and symbolic."""

    def declare(cls: type[_T]) -> type[_T]:
        declared: type[_T] = dataclass(slots=True)(cls)
        _BY_CODE[code] = declared
        _CODE_BY_NAME[name] = code
        _CODE[declared] = code
        _FIELD_TYPES[declared] = [
            (f.name, f.metadata["type"])
            for f in fields(declared)  # type: ignore[arg-type]
        ]
        return declared

    return declare


def composed(value: object) -> Any:
    """The composite a described value stands for; any other value comes back as it is."""
    if not isinstance(value, Described):
        return value
    descriptor = value.descriptor
    if isinstance(descriptor, Symbol):
        code = _CODE_BY_NAME.get(descriptor)
    else:
        code = descriptor if isinstance(descriptor, ULong) else None
    cls = _BY_CODE.get(code) if code is not None else None
    if cls is None:
        return value
    if not isinstance(value.value, list) or isinstance(value.value, Array):
        raise DecodeError(f"{cls.__name__} is not a list")
    kinds = _FIELD_TYPES[cls]
    if len(value.value) > len(kinds):
        raise DecodeError(f"{cls.__name__} has {len(value.value)} fields")
    result = cls()
    for (name, kind), item in zip(kinds, value.value, strict=False):
        if item is not None:
            setattr(result, name, _accept(kind, item, f"{cls.__name__}.{name}"))
    return result


def decode_composite(data: bytes, pos: int, end: int) -> tuple[Any, int]:
    """The performative that starts at `pos` and the offset behind it."""
    value, after = decode(data, pos, end)
    result = composed(value)
    if isinstance(result, Described) or type(result) not in _CODE:
        raise DecodeError("not a performative")
    return result, after


def compose(value: Any) -> bytes:
    """Encode a composite, or any other value for which `encode` has a form."""
    code = _CODE.get(type(value))
    if code is None:
        return encode(value)
    items: list[bytes] = []
    names = _FIELD_TYPES[type(value)]
    kept = len(names) if code <= _ERROR or code in _TERMINI else 0
    for name, kind in names:
        item = getattr(value, name)
        items.append(b"\x40" if item is None else _emit(kind, item))
        if item is not None:
            kept = max(kept, len(items))
    return bytes((0x00, 0x53, code)) + encode_list(items[:kept])


def is_composite(value: object) -> bool:
    """Whether the value is of one of the classes declared here."""
    return type(value) in _CODE


_NUMBERS: Final = {
    "uint": (UInt, 0xFFFFFFFF),
    "ulong": (ULong, 0xFFFFFFFFFFFFFFFF),
    "ushort": (UShort, 0xFFFF),
    "ubyte": (UByte, 0xFF),
}
_PLAIN: Final[dict[str, type]] = {
    "string": str,
    "symbol": str,
    "boolean": bool,
    "binary": bytes,
    "map": dict,
}


def _accept(kind: str, value: object, name: str) -> object:
    """Check a decoded field against its declared type, so that the engine can trust it."""
    if kind == "*":
        return composed(value)
    if kind in _NUMBERS:
        if isinstance(value, int) and type(value) is not bool and 0 <= value <= _NUMBERS[kind][1]:
            return value
    elif kind == "symbols":
        items = value if isinstance(value, list) else [value]
        if all(isinstance(item, str) for item in items):
            return list(items)
    elif kind == "error":
        error = composed(value)
        if _CODE.get(type(error)) == _ERROR:
            return error
    elif isinstance(value, _PLAIN[kind]):
        return value
    raise DecodeError(f"{name} is no {kind}")


def _emit(kind: str, value: Any) -> bytes:
    """Encode a field as its declared type."""
    if kind in _NUMBERS:
        return encode(_NUMBERS[kind][0](value))
    if kind == "symbol":
        return encode(Symbol(value))
    if kind == "symbols":
        return encode(Array([Symbol(item) for item in value], Symbol))
    if kind in ("*", "error"):
        return compose(value)
    if not isinstance(value, _PLAIN[kind]):
        raise EncodeError(f"{value!r} is no {kind}")
    return encode(value)
