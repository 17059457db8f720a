"""What a link's binding and its connection ask of each other.

A binding is what an attached link stands for: a publisher or consumer of an entity, or one end of
a request/response pair. The connection calls it with what happened on the link; it answers by
commands on the engine's link and asks to be flushed once at the end of the turn.
"""

from __future__ import annotations

from typing import Protocol

from partibus.broker.access import Right
from partibus.engine.delivery import Delivery
from partibus.engine.events import Settlements
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.engine.session import Session
from partibus.gateway.claims import Claims
from partibus.gateway.settings import GatewaySettings
from partibus.gateway.tracking import Tracking
from partibus.gateway.transactions import Transactions
from partibus.runtime.node import Node
from partibus.wire.performatives import Error


class Binding(Protocol):
    """What a link is bound to. Whoever has nothing to do at an occasion leaves it out."""

    # What the link was authorised by, to be asked again when tokens end.
    path: str
    right: Right
    # Another entity on which the same right is needed; empty: none.
    second_path: str = ""
    # When something last happened on the link, or on its behalf.
    active_ms: int
    # Whether ten minutes of silence end the link.
    may_idle_out: bool = True

    @property
    def link(self) -> SenderLink | ReceiverLink:
        """The engine's link."""
        raise NotImplementedError

    def deliveries(self, deliveries: list[Delivery]) -> None:
        """Messages came in."""
        return

    def settlements(self, event: Settlements) -> None:
        """The peer gave outcomes to what we sent."""
        return

    def flowed(self) -> None:
        """Credit or drain changed, or there is room again."""
        return

    def flush(self) -> None:
        """The turn ends: write what has gathered."""
        return

    def pause(self) -> None:
        """The socket takes no more for now."""
        return

    def resume(self) -> None:
        """The socket takes more again."""
        return

    def close(self) -> None:
        """The link is over."""
        return


class Carrier(Protocol):
    """The connection, as its bindings see it."""

    node: Node
    settings: GatewaySettings
    tracking: Tracking
    claims: Claims
    transactions: Transactions

    def now_ms(self) -> int:
        """The time of this turn."""

    def wake(self, binding: Binding) -> None:
        """Flush the binding, and the connection, when this turn ends (or soon, in one)."""

    def hold(self, size: int) -> None:
        """This many bytes were taken in and are not durable yet."""

    def release(self, size: int) -> None:
        """They are now."""

    def bindings_of(self, session: Session | None) -> list[Binding]:
        """The bindings of a session's links; of all links where none is named."""
        raise NotImplementedError

    def count_at(self, path: str) -> int:
        """How many links are bound to this path."""
        raise NotImplementedError

    def refresh(self, link_name: str) -> None:
        """Something was done on behalf of the link with this name."""

    def tokens_changed(self) -> None:
        """A token was put: deadlines may be others."""

    def refuse(self, condition: str, sentence: str) -> None:
        """Close the whole connection with an error."""

    def hang_up(self, condition: str, sentence: str) -> None:
        """Close it when this turn's answers are written, and wait for no answer to that."""

    def detach(self, binding: Binding, error: Error) -> None:
        """End the binding's link with an error."""

    def throttle(self) -> None:
        """Much was written in this turn: no more deliveries until the socket has taken it."""

    def wait_for_room(self, binding: Binding) -> None:
        """Call `flowed` again once frames have left: the session was full."""
