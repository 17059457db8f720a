"""One AMQP session: windows, handles, delivery-ids and the ranges of dispositions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partibus.wire.performatives import Attach, Error

if TYPE_CHECKING:
    from partibus.engine.connection import Connection
    from partibus.engine.link import ReceiverLink, SenderLink


class Session:
    """A session; `context` belongs to the driver."""

    context: object
    connection: Connection

    @property
    def links(self) -> list[SenderLink | ReceiverLink]:
        raise NotImplementedError

    @property
    def can_send(self) -> bool:
        """Whether the peer's window, our buffers and the unsettled bound leave room."""
        raise NotImplementedError

    def attach_sender(self, attach: Attach) -> SenderLink:
        """Client: attach a link on which we send (handle and role are set here)."""
        raise NotImplementedError

    def attach_receiver(self, attach: Attach) -> ReceiverLink:
        raise NotImplementedError

    def end(self, error: Error | None = None) -> None:
        raise NotImplementedError
