"""Other names for entities: what is told in steps is what is there (M5)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import EntityAlreadyExists, EntityNotFound, InvalidOperation, Refusal
from partibus.broker.properties import InvalidDescription
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.store.catalog import Catalog, NamespaceSettings

SETTINGS = NamespaceSettings("test", 2, "standard")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog.make(tmp_path / "catalog.sqlite", SETTINGS, lambda: "a2V5")
    for name in ("a", "b"):
        made.create_queue(QueueDescription(name), 1)
    made.load()
    return made


def ids(catalog: Catalog) -> dict[str, int]:
    return {key: entity.id for key, entity in catalog.load().entities.items()}


def test_M5_two_names_are_exchanged_at_once_and_rules_stay_with_the_names(
    catalog: Catalog,
) -> None:
    before = ids(catalog)
    catalog.put_access_rule(AccessRule("of-a", "a", "b", Right.SEND), "a")
    catalog.load()
    catalog.swap("A", "b", 2)
    after = catalog.load()
    assert {key: each.id for key, each in after.entities.items()} == {
        "a": before["b"],
        "b": before["a"],
    }
    assert [each.name for each in after.rules_of(after.find("a"))] == ["of-a"]
    assert after.rules_of(after.find("b")) == ()
    catalog.swap("a", "a", 3)


def test_an_entity_gets_another_name_and_keeps_its_id(catalog: Catalog) -> None:
    before = ids(catalog)
    catalog.rename("a", "c/d", 2)
    assert ids(catalog) == {"c/d": before["a"], "b": before["b"]}
    # Another spelling of its own name.
    catalog.rename("C/D", "C/d", 3)
    found = catalog.load().find("c/d")
    assert found is not None
    assert (found.name, found.description.name) == ("C/d", "C/d")
    catalog.create_queue(QueueDescription("a"), 4)
    assert ids(catalog)["a"] not in before.values()


def test_what_cannot_be_renamed_is_refused_and_stays(catalog: Catalog) -> None:
    before = ids(catalog)
    catalog.update_queue("b", {"ForwardTo": "a"}, 2)
    for new_name, refusal in (("b", EntityAlreadyExists), ("x y", InvalidDescription)):
        with pytest.raises(refusal):
            catalog.rename("a", new_name, 3)
    with pytest.raises(InvalidOperation, match="'b' forwards to 'a'"):
        catalog.rename("a", "c", 3)
    with pytest.raises(EntityNotFound):
        catalog.rename("none", "c", 3)
    catalog.create_topic(TopicDescription("t"), 3)
    with pytest.raises(InvalidOperation, match="topic"):
        catalog.swap("a", "t", 4)
    assert {key: each for key, each in ids(catalog).items() if key != "t"} == before


def test_subscriptions_go_with_their_topic(catalog: Catalog) -> None:
    for topic in ("t", "u"):
        catalog.create_topic(TopicDescription(topic), 1)
        catalog.create_subscription(topic, SubscriptionDescription(topic + "1"), 1)
    catalog.create_subscription("t", SubscriptionDescription("both"), 1)
    catalog.create_subscription("u", SubscriptionDescription("both"), 1)
    before = ids(catalog)
    catalog.swap("t", "u", 2)
    after = ids(catalog)
    assert after["u/subscriptions/t1"] == before["t/subscriptions/t1"]
    assert after["u/subscriptions/both"] == before["t/subscriptions/both"]
    assert after["t/subscriptions/both"] == before["u/subscriptions/both"]
    with pytest.raises(EntityNotFound):
        catalog.rename("t/subscriptions/both", "x", 3)
    catalog.rename("u", "v", 3)
    topic = catalog.load().find("v")
    assert topic is not None
    names = {each.name for each in catalog.load().subscriptions_of(topic)}
    assert names == {"v/Subscriptions/t1", "v/Subscriptions/both"}


NAMES = st.sampled_from("abcd")


class NamesAgainstModel(RuleBasedStateMachine):
    """What is read in steps agrees with a dict of names, and with who reads it all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "catalog.sqlite"
        self.catalog = Catalog.make(self.path, SETTINGS, lambda: "a2V5")
        self.model: dict[str, int] = {}
        self.next_id = 1

    def teardown(self) -> None:
        self.catalog.close()
        self.directory.cleanup()

    def attempt(self, allowed: bool, change: object) -> bool:
        assert callable(change)
        if allowed:
            change()
        else:
            with pytest.raises(Refusal):
                change()
        return allowed

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        if self.attempt(
            name not in self.model,
            lambda: self.catalog.create_queue(QueueDescription(name), 1),
        ):
            self.model[name] = self.next_id
            self.next_id += 1

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.attempt(name in self.model, lambda: self.catalog.delete_queue(name, 1)):
            del self.model[name]

    @rule(name=NAMES, new=NAMES)
    def rename(self, name: str, new: str) -> None:
        fits = name in self.model and (new not in self.model or new == name)
        if self.attempt(fits, lambda: self.catalog.rename(name, new, 1)):
            self.model[new] = self.model.pop(name)

    @rule(one=NAMES, other=NAMES)
    def swap(self, one: str, other: str) -> None:
        fits = one in self.model and other in self.model
        if self.attempt(fits, lambda: self.catalog.swap(one, other, 1)):
            self.model[one], self.model[other] = self.model[other], self.model[one]

    @rule()
    def look(self) -> None:
        """Not after every change: several of them are read together."""
        found = self.catalog.load()
        assert {key: each.id for key, each in found.entities.items()} == self.model
        assert {each.id: each.key for each in found.by_id.values()} == {
            number: name for name, number in self.model.items()
        }

    @rule()
    def a_newcomer_sees_the_same(self) -> None:
        newcomer = Catalog.open(self.path)
        assert ids(newcomer) == self.model
        newcomer.close()


TestNames = NamesAgainstModel.TestCase
# Every change is flushed to disk: few runs, long enough for names to come and go.
TestNames.settings = settings(max_examples=15, stateful_step_count=25)
