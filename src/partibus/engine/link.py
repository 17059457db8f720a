"""Links: where deliveries go out (SenderLink) and come in (ReceiverLink)."""

from __future__ import annotations

from partibus.engine.session import Session
from partibus.wire.performatives import Attach, Error


class SenderLink:
    """A link on which we send."""

    context: object
    session: Session
    name: str
    peer_attach: Attach | None
    credit: int
    drain: bool
    delivery_count: int

    def accept(
        self,
        *,
        source: object = None,
        target: object = None,
        max_message_size: int | None = None,
        properties: dict[object, object] | None = None,
    ) -> None:
        """Answer the attach; source and target are the peer's own unless given (session filter)."""
        raise NotImplementedError

    def refuse(self, error: Error) -> None:
        """Attach without source and target, then detach closed with the error."""
        raise NotImplementedError

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        raise NotImplementedError

    @property
    def sendable(self) -> int:
        """How many deliveries may be sent now: the credit, or 0 where the session is full."""
        raise NotImplementedError

    def send(
        self, tag: bytes, payload: bytes, *, settled: bool = False, message_format: int = 0,
        state: object = None,
    ) -> int:
        """Send one message; returns its delivery-id."""
        raise NotImplementedError

    def send_many(self, messages: list[tuple[bytes, bytes]], settled: bool = False) -> int:
        """Send (tag, payload) pairs; they get consecutive delivery-ids from the one returned."""
        raise NotImplementedError

    def drained(self) -> None:
        """Answer a drain: what credit is left is used up."""
        raise NotImplementedError

    def settle(self, delivery_ids: list[int], state: object) -> None:
        """Write settled dispositions (role sender), as ranges where the ids are consecutive."""
        raise NotImplementedError


class ReceiverLink:
    """A link on which the peer sends. accept, refuse, detach as for SenderLink."""

    context: object
    session: Session
    name: str
    peer_attach: Attach | None
    credit: int
    overrun: int
    delivery_count: int

    def accept(
        self,
        *,
        source: object = None,
        target: object = None,
        max_message_size: int | None = None,
        properties: dict[object, object] | None = None,
    ) -> None:
        raise NotImplementedError

    def refuse(self, error: Error) -> None:
        raise NotImplementedError

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        raise NotImplementedError

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the link's credit (not add to it) and tell the peer by a flow."""
        raise NotImplementedError

    def settle(self, delivery_ids: list[int], state: object, *, settled: bool = True) -> None:
        """Give an outcome to deliveries, as ranges where the ids are consecutive."""
        raise NotImplementedError
