"""What the engine tells its driver: one small value for each thing that happened.

Events are facts about the peer, in the order of arrival; the driver answers by commands on the
connection, session or link an event carries. There is no event for what the engine answers by
itself (begin, echo, empty frames, detach and end of the peer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from partibus.engine.delivery import Delivery
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.engine.session import Session
from partibus.wire.performatives import Attach, Error, Open

__all__ = [
    "Closed",
    "Deliveries",
    "Delivery",
    "Event",
    "LinkAttached",
    "LinkDetached",
    "LinkFlowed",
    "Opened",
    "SaslFinished",
    "SaslInitiated",
    "SessionBegun",
    "SessionEnded",
    "Settlements",
]


@dataclass(frozen=True, slots=True)
class SaslInitiated:
    """Server: the client chose a mechanism. Answer with `Connection.sasl_outcome(ok)`."""

    mechanism: str
    response: bytes


@dataclass(frozen=True, slots=True)
class SaslFinished:
    """Client: the server has answered. When not ok, `Closed` follows."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open has arrived (and ours is written). Refuse it with `Connection.close`."""

    open: Open


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A session is usable: the peer began it (our answer is written) or answered our begin."""

    session: Session


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is over, and with it the `links` it still had."""

    session: Session
    links: list[SenderLink | ReceiverLink]
    error: Error | None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attached a link.

    `answer` False: the peer began it and waits for `link.accept` or `link.refuse`, which may
    come any time later; credit and messages may arrive before (look at `link.sendable` after
    `accept`). `answer` True: the peer answered our attach. A refusal comes as an answer
    without source or target, followed by LinkDetached.
    """

    link: SenderLink | ReceiverLink
    attach: Attach
    answer: bool


@dataclass(frozen=True, slots=True)
class LinkFlowed:
    """Credit or drain of a link changed (or the window of its session opened again).

    For a sender link: look at `link.sendable` and `link.drain`; a drain must be answered with
    `link.drained()`. For a receiver link: the peer has answered our drain.
    """

    link: SenderLink | ReceiverLink


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Messages that arrived on a link: one event per link and `receive_data`.

    Only a link to a transaction coordinator gets an event per message, because there the order
    among the settlements of other links matters.
    """

    link: ReceiverLink
    deliveries: list[Delivery]


@dataclass(frozen=True, slots=True)
class Settlements:
    """The peer gave an outcome to deliveries of a link.

    For a sender link these are deliveries we sent, each reported once, at its first terminal
    state or settlement; `settled` False means that the peer waits for `link.settle`. For a
    receiver link they are deliveries for which we had sent an unsettled outcome.
    `state` is a decoded outcome (Accepted, Rejected, Released, Modified, Declared,
    TransactionalState) or None where the peer settled without one.
    """

    link: SenderLink | ReceiverLink
    deliveries: list[tuple[int, bytes]]
    state: object
    settled: bool


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link is over: by the peer (answered already), by an error, or as answer to ours.

    There is exactly one for each link that ends before its session does.
    """

    link: SenderLink | ReceiverLink
    closed: bool
    error: Error | None


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over; send what `data_to_send` still holds, then drop the transport."""

    error: Error | None


Event: TypeAlias = (
    SaslInitiated
    | SaslFinished
    | Opened
    | SessionBegun
    | SessionEnded
    | LinkAttached
    | LinkFlowed
    | Deliveries
    | Settlements
    | LinkDetached
    | Closed
)
