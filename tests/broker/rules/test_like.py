"""LIKE agrees with a regular expression and never takes more steps than characters."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partibus.broker.rules.errors import EvaluationError
from partibus.broker.rules.like import PATTERN_MAX, Pattern

LETTERS = "ab%_!"


def slow(pattern: str, escape: str | None, text: str) -> bool:
    """The same by a regular expression, which may go back as often as it likes."""
    expression = ""
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            expression += re.escape(next(letters))
        else:
            expression += {"%": ".*", "_": "."}.get(letter, re.escape(letter))
    return re.fullmatch(expression, text, re.DOTALL) is not None


@given(
    st.text(LETTERS, max_size=8), st.sampled_from([None, "!", "%"]), st.text(LETTERS, max_size=9)
)
@example("%a_b%", None, "aaab")
@example("a%a", None, "a")
@example("", None, "")
@example("%", None, "")
def test_a_pattern_matches_what_a_regular_expression_would(
    pattern: str, escape: str | None, text: str
) -> None:
    try:
        compiled = Pattern(pattern, escape)
    except EvaluationError:
        assert escape is not None
        assert (len(pattern) - len(pattern.rstrip(escape))) % 2 == 1
        return
    assert compiled.matches(text) == slow(pattern, escape, text)
    assert 1 <= compiled.cost(text) <= 1 + len(text)


class CountedText(str):
    """Counts how often one of its characters is looked at."""

    seen = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        for letter in str.__iter__(self):
            self.seen += 1
            yield letter


@pytest.mark.parametrize("pattern", ["%a_" * 300 + "b", "_%" * 500, "%" * 1000 + "_b", "a_" * 500])
def test_the_worst_patterns_look_at_each_character_once(pattern: str) -> None:
    text = CountedText("a" * 60_000)
    Pattern(pattern).matches(text)
    assert text.seen <= len(text)


def test_a_pattern_has_a_longest_length_and_an_escape_something_to_escape() -> None:
    Pattern("%" * PATTERN_MAX)
    with pytest.raises(EvaluationError, match=f"{PATTERN_MAX} are allowed"):
        Pattern("%" * (PATTERN_MAX + 1))
    with pytest.raises(EvaluationError, match="nothing follows"):
        Pattern("a!", "!")
