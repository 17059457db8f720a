"""What an access rule may be."""

from __future__ import annotations

import pytest

from partibus.broker.access import ALL_RIGHTS, Right
from partibus.broker.access_rules import KEY_LENGTH_MAX, read_access_rule, write_rights
from partibus.broker.properties import InvalidDescription


def test_a_rule_has_a_name_rights_and_keys() -> None:
    rule = read_access_rule("own", ["Send", "Listen"], "a", "b")
    assert (rule.name, rule.rights) == ("own", Right.SEND | Right.LISTEN)
    assert (rule.primary_key, rule.secondary_key) == ("a", "b")
    assert write_rights(ALL_RIGHTS) == ["Listen", "Send", "Manage"]


@pytest.mark.parametrize("rights", [None, [], "Send", ["Write"], [["Send"]], ["Manage"]])
def test_rights_that_are_none_are_refused(rights: object) -> None:
    with pytest.raises(InvalidDescription, match="Rights"):
        read_access_rule("own", rights)


@pytest.mark.parametrize("key", ["with space", "a;b", "x" * (KEY_LENGTH_MAX + 1), "\n", 5])
def test_a_bad_key_is_refused_and_not_repeated(key: object) -> None:
    with pytest.raises(InvalidDescription, match="SecondaryKey") as refused:
        read_access_rule("own", ["Send"], "good", key)
    assert str(key) not in str(refused.value) or key == 5


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidDescription, match="KeyName"):
        read_access_rule("a/b", ["Send"])
