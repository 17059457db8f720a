"""A message that has arrived whole: the value which goes from the engine to its driver.

It has a module of its own because it is made once per message, in compiled code.
"""

from __future__ import annotations


class Delivery:
    """One delivery: undecoded `payload` with what its transfer frames said about it."""

    __slots__ = ("delivery_id", "message_format", "payload", "settled", "state", "tag")

    def __init__(
        self,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        state: object,
        payload: bytes,
    ) -> None:
        self.delivery_id: int = delivery_id
        self.tag: bytes = tag
        self.message_format: int = message_format
        self.settled: bool = settled
        # A decoded delivery state (TransactionalState), or None.
        self.state: object = state
        self.payload: bytes = payload

    def __repr__(self) -> str:
        return f"Delivery(id={self.delivery_id}, tag={self.tag!r}, {len(self.payload)} bytes)"
