"""The LIKE of SQL: `%` stands for any run of characters, `_` for one.

A match costs time linear in the text, whatever the pattern: most patterns are a few searches for
plain text, the others run as a row of bits, one step for each character. There is nothing that
goes back. `cost` says how many steps a match takes at most, so that evaluations can be bounded.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.rules.errors import EvaluationError

PATTERN_MAX = 1024
# A search for plain text passes over this many characters in the time of one step.
_CHARACTERS_PER_STEP = 64


class Pattern:
    """A pattern, compiled."""

    __slots__ = ("_searches", "matches")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        if len(pattern) > PATTERN_MAX:
            raise EvaluationError(
                f"a pattern of {len(pattern)} characters; {PATTERN_MAX} are allowed"
            )
        parts = _parts(pattern, escape)
        self._searches = _ANY_ONE not in parts
        self.matches: Callable[[str], bool] = (
            _search(parts) if self._searches else _rows_of_bits(parts)
        )

    def cost(self, text: str) -> int:
        """The steps of a match, at most."""
        return 1 + len(text) // (_CHARACTERS_PER_STEP if self._searches else 1)


_ANY_RUN = object()
_ANY_ONE = object()


def _parts(pattern: str, escape: str | None) -> list[object]:
    """Characters, and what stands for others."""
    parts: list[object] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            follower = next(letters, None)
            if follower is None:
                raise EvaluationError(f"nothing follows the escape character {escape!r}")
            parts.append(follower)
        elif letter == "%":
            parts.append(_ANY_RUN)
        else:
            parts.append(_ANY_ONE if letter == "_" else letter)
    return parts


def _search(parts: list[object]) -> Callable[[str], bool]:
    """Plain texts between runs: the first begins, the last ends, the others come in order."""
    texts = [""]
    for part in parts:
        if part is _ANY_RUN:
            texts.append("")
        else:
            texts[-1] += str(part)
    first, *middle, last = texts if len(texts) > 1 else [texts[0], texts[0]]
    if len(texts) == 1:
        return first.__eq__
    inner = [text for text in middle if text]
    shortest = len(first) + len(last)

    def matches(text: str) -> bool:
        if len(text) < shortest or not (text.startswith(first) and text.endswith(last)):
            return False
        at, end = len(first), len(text) - len(last)
        for each in inner:
            at = text.find(each, at, end)
            if at < 0:
                return False
            at += len(each)
        return True

    return matches


def _rows_of_bits(parts: list[object]) -> Callable[[str], bool]:
    """Bit i of the row: the text so far fits the first i parts (the runs counted out)."""
    everyone = runs = 0
    masks: dict[str, int] = {}
    place = 1
    for part in parts:
        if part is _ANY_RUN:
            runs |= place
        else:
            place <<= 1
            if part is _ANY_ONE:
                everyone |= place
            else:
                masks[str(part)] = masks.get(str(part), 0) | place
    whole = place

    def matches(text: str) -> bool:
        row = 1
        for letter in text:
            row = ((row << 1) & (masks.get(letter, 0) | everyone)) | (row & runs)
            if not row:
                return False
        return bool(row & whole)

    return matches
