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
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = settled
        self.state = state
        self.payload = payload
