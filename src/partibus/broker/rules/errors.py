"""What can be wrong with a rule: its text, when it is made, or its evaluation, for a message."""

from __future__ import annotations

from partibus.broker.properties import InvalidDescription


class InvalidRule(InvalidDescription):
    """A filter or action that is not one; says where it is wrong and what is allowed there."""

    def __init__(self, problem: str) -> None:
        super().__init__("SqlExpression", None, "", problem)


class EvaluationError(Exception):
    """A rule has no answer for a message: it divides by zero, or asks for what nobody has."""


class HeaderSizeExceeded(EvaluationError):
    """An action made the properties larger than a message may have them."""
