"""Promises about composite types: complete as clients need them, lenient as peers send them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from partibus.wire import performatives
from partibus.wire.codec import decode_all, encode
from partibus.wire.composites import compose, composed, decode_composite
from partibus.wire.errors import DecodeError, EncodeError
from partibus.wire.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Error,
    Modified,
    Open,
    Rejected,
    SaslMechanisms,
    Source,
    Target,
    TransactionalState,
)
from partibus.wire.values import Described, Symbol, UInt, ULong

ALL: list[Any] = [
    cls
    for cls in vars(performatives).values()
    if isinstance(cls, type) and dataclasses.is_dataclass(cls)
]

FULL = [
    Open("c", "h", 1000, 9, 60_000, ["en"], ["en"], ["a"], ["b"], {Symbol("product"): "p"}),
    Begin(1, 2, 3, 4, 5),
    Attach(
        "name",
        7,
        True,
        1,
        0,
        Source("q", filter={Symbol("f"): Described(Symbol("f"), "x")}, capabilities=["x"]),
        Target("t"),
        max_message_size=1 << 40,
    ),
    Attach("tx", target=Coordinator(["amqp:local-transactions"])),
    Detach(3, True, Error("amqp:not-found", "gone", {Symbol("a"): 1})),
    Rejected(Error("a", "b")),
    Modified(True, False, {Symbol("a"): "b"}),
    TransactionalState(b"txn", ACCEPTED),
]


@pytest.mark.parametrize("value", [cls() for cls in ALL] + FULL, ids=lambda v: type(v).__name__)
def test_a_composite_comes_back_as_it_was(value: Any) -> None:
    data = compose(value)
    assert data[:2] == b"\x00\x53", "pyamqp finds the code at a fixed place"
    assert decode_composite(data, 0, len(data)) == (value, len(data))


def test_an_error_always_has_three_fields() -> None:
    data = compose(Rejected(Error("amqp:not-found")))
    assert decode_all(data).value[0].value == [Symbol("amqp:not-found"), None, None]


def test_missing_trailing_fields_take_their_defaults() -> None:
    value = composed(Described(ULong(0x10), ["id"]))
    assert value == Open("id")
    assert value.max_frame_size == 0xFFFFFFFF


def test_descriptors_may_be_symbols() -> None:
    assert composed(Described(Symbol("amqp:accepted:list"), [])) == ACCEPTED


def test_one_symbol_stands_for_a_list_of_one() -> None:
    value = composed(Described(ULong(0x40), [Symbol("PLAIN")]))
    assert value == SaslMechanisms(["PLAIN"])


def test_an_unknown_descriptor_is_left_alone() -> None:
    value = Described(ULong(0x137000000C), "session")
    assert composed(value) is value


@pytest.mark.parametrize(
    "value",
    [
        Described(ULong(0x10), [5]),
        Described(ULong(0x10), ["id", None, True]),
        Described(ULong(0x11), [UInt(70_000)]),
        Described(ULong(0x16), [UInt(1), True, "error"]),
        Described(ULong(0x24), [1]),
        Described(ULong(0x24), {}),
        Described(ULong(0x28), ["q", UInt(0), None, None, None, [1]]),
    ],
)
def test_fields_of_the_wrong_type_are_refused(value: Described) -> None:
    with pytest.raises(DecodeError):
        composed(value)


@pytest.mark.parametrize("value", [5, Described(ULong(0x99), []), [1]])
def test_what_is_no_performative_is_refused(value: object) -> None:
    data = encode(value)
    with pytest.raises(DecodeError):
        decode_composite(data, 0, len(data))


def test_our_own_mistakes_are_told_when_encoding() -> None:
    with pytest.raises(EncodeError):
        compose(Open(container_id=5))  # type: ignore[arg-type]
