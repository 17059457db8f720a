"""What can be wrong with bytes and values, apart from what a peer does with them."""

from __future__ import annotations


class DecodeError(ValueError):
    """The bytes are not the AMQP they should be. Every malformed input ends here."""


class EncodeError(ValueError):
    """A value has no AMQP form: a wrong type, or out of the range of its type."""
