"""Which names are allowed, and when two names are one."""

from __future__ import annotations

import pytest

from partibus.broker.names import (
    ENTITY_NAME_MAX,
    check_entity_name,
    check_plain_name,
    entity_of_address,
    name_key,
)
from partibus.broker.properties import InvalidDescription


@pytest.mark.parametrize("name", ["q", "queue.1", "a/b/c", "Orders-EU_2~x", "a" * ENTITY_NAME_MAX])
def test_an_entity_may_be_called(name: str) -> None:
    assert check_entity_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "/q", "q/", "a//b", "a b", "q?", "q#", "q@x", "q*", "$cbs", "é", "a/../b", "q\n", 7, None,
     "a" * (ENTITY_NAME_MAX + 1)],
)  # fmt: skip
def test_an_entity_may_not_be_called(name: object) -> None:
    with pytest.raises(InvalidDescription) as refused:
        check_entity_name(name)
    assert refused.value.property == "Name"


def test_names_differing_in_case_are_the_same_name() -> None:
    assert name_key("Orders/EU") == name_key("orders/eu")


def test_a_subscription_name_has_one_segment() -> None:
    assert check_plain_name("sub.1", 50) == "sub.1"
    with pytest.raises(InvalidDescription):
        check_plain_name("a/b", 50)


@pytest.mark.parametrize("address", ["q/1", "/q/1", "sb://host/q/1", "amqps://host:5671/q/1/"])
def test_an_address_names_its_entity(address: str) -> None:
    assert entity_of_address(address) == "q/1"
