"""What our end of a link is told, and what every end remembers of its beginning and its end."""

from __future__ import annotations

from partibus.client.errors import LinkLost, MessagingError, error_of
from partibus.client.pending import Pending
from partibus.engine.delivery import Delivery
from partibus.engine.events import Settlements
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.wire.performatives import (
    Attach,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)


class LinkEnd:
    """Our end of one link. Who has nothing to do at an occasion leaves it out."""

    def __init__(self, link: SenderLink | ReceiverLink) -> None:
        link.context = self
        self._any_link = link
        self.name = link.name
        self.attached: Pending[None] = Pending()
        self.detached: Pending[None] = Pending()
        # Why the link ended; None while it has not.
        self.error: MessagingError | None = None

    @property
    def is_usable(self) -> bool:
        """Whether the link is attached and nobody has begun to end it."""
        return self.error is None and self._any_link.is_attached

    @property
    def answer(self) -> Attach:
        """What the service attached with."""
        attach = self._any_link.peer_attach
        assert attach is not None
        return attach

    def close(self) -> Pending[None]:
        """Detach the link; done when the service has too."""
        if not self.detached.is_done:
            self._any_link.detach()
        return self.detached

    def on_attached(self, attach: Attach) -> None:
        """The service answered. Without a terminus it refuses, and a detach follows."""
        is_sender = isinstance(self._any_link, SenderLink)
        if (attach.target if is_sender else attach.source) is not None:
            self.attached.resolve(None)

    def on_ended(self, error: MessagingError) -> None:
        """The link is over, whoever ended it."""
        if self.error is None:
            self.error = error
        self.attached.fail(error)
        self.detached.resolve(None)

    def on_flowed(self) -> None:
        """There is credit, or a drain was answered, or there is room again."""
        return

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Messages came."""
        return

    def on_settled(self, event: Settlements) -> None:
        """Deliveries got their outcome."""
        return


def failure_of(state: object) -> MessagingError | None:
    """What an outcome says went wrong; None where it is what was asked for.

    A rejection without an error is what the service answers to a dead-lettering.
    """
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return error_of(outcome.error, MessagingError)
    return None


def refusal_of(state: object) -> MessagingError | None:
    """The same for a message that we sent: only accepted is accepted."""
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    if isinstance(outcome, Rejected) and outcome.error is None:
        return MessagingError("the service rejected the message without a reason")
    if isinstance(outcome, (Released, Modified)):
        return LinkLost("the service gave the message back")
    return failure_of(state)


def ending(error: Error | None) -> MessagingError:
    """Why a link ended, as an exception."""
    return error_of(error, LinkLost)
