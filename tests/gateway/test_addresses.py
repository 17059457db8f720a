"""What the addresses of links mean."""

from __future__ import annotations

import pytest

from partibus.broker.errors import InvalidArgument
from partibus.gateway.addresses import ADDRESS_LENGTH_MAX, Address, NodeKind, read_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("q", Address(NodeKind.ENTITY, "q")),
        ("amqps://host/A/B", Address(NodeKind.ENTITY, "a/b")),
        ("q/$DeadLetterQueue", Address(NodeKind.ENTITY, "q/$deadletterqueue")),
        ("/q/$Management", Address(NodeKind.MANAGEMENT, "q")),
        ("q/$DeadLetterQueue/$management", Address(NodeKind.MANAGEMENT, "q/$deadletterqueue")),
        ("$management", Address(NodeKind.MANAGEMENT, "")),
        ("$cbs", Address(NodeKind.CBS, "")),
        ("amqps://host/$CBS", Address(NodeKind.CBS, "")),
    ],
)
def test_an_address_names_a_node(text: str, address: Address) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text", [None, 7, b"q", "", "/", "sb://host", "a" * (ADDRESS_LENGTH_MAX + 1)]
)
def test_what_names_nothing_is_refused(text: object) -> None:
    with pytest.raises(InvalidArgument):
        read_address(text)
