"""What a gateway asks of a broker, in one form for its own node and for others over the hop.

Requests carry batches, never single messages by design; they are coded with msgspec as arrays.
"""

from __future__ import annotations

import msgspec

from partibus.broker.errors import Refusal, refusal
from partibus.broker.message import Incoming
from partibus.broker.records import FragmentKey
from partibus.broker.settlement import Settlement
from partibus.runtime.bulk_requests import Consume, GiveBack, ListReaders


class Send(msgspec.Struct, tag="s", array_like=True):
    """Messages for one fragment: all accepted in one commit, or none."""

    store: int
    entity: int
    incarnation: int
    partition: int
    messages: list[Incoming]
    # The sender's own number for what it may want to take back before it is answered; 0: nothing.
    ticket: int = 0


class Discard(msgspec.Struct, tag="x", array_like=True):
    """Remove copies: the same messages were sent elsewhere, because the store was late.

    Either the positions are known, from a late answer; or the ticket of the send that has none.
    """

    store: int
    entity: int
    incarnation: int
    partition: int
    positions: list[int]
    ticket: int = 0


class Settle(msgspec.Struct, tag="e", array_like=True):
    """Settle messages of one entity that lie in one store, by fragment (token prefix)."""

    store: int
    entity: int
    groups: list[tuple[bytes, list[bytes]]]
    settlement: Settlement


class Forward(msgspec.Struct, tag="w", array_like=True):
    """Messages of a transfer queue for one fragment, in order of their positions there.

    The same may come again; whoever has taken them says so, and takes them once.
    """

    store: int
    entity: int
    incarnation: int
    partition: int
    source: FragmentKey
    positions: list[int]
    messages: list[Incoming]


class SendVia(msgspec.Struct, tag="v", array_like=True):
    """Messages for another entity (its id and incarnation), into a fragment's transfer queue."""

    store: int
    entity: int
    incarnation: int
    partition: int
    destination: tuple[int, int]
    messages: list[Incoming]


class Reserve(msgspec.Struct, tag="q", array_like=True):
    """Give out the next sequence numbers of a fragment, for messages that come later or never."""

    store: int
    entity: int
    incarnation: int
    partition: int
    count: int


class Reserved(msgspec.Struct, array_like=True):
    """Messages for positions that were reserved, and in which life of the store they were."""

    life: bytes
    first: int
    messages: list[Incoming]


class Discharge(msgspec.Struct, tag="t", array_like=True):
    """A transaction: messages and settlements of one fragment, in one commit or not at all."""

    store: int
    entity: int
    incarnation: int
    # Where the messages go; None where there are none.
    partition: int | None
    messages: list[Incoming]
    settlements: list[tuple[Settlement, list[tuple[bytes, list[bytes]]]]]
    # Messages for other entities (id and incarnation), through the transfer queue.
    transfers: list[tuple[tuple[int, int], list[Incoming]]] = []
    scheduled: list[Reserved] = []


class Renew(msgspec.Struct, tag="r", array_like=True):
    """Extend message locks."""

    store: int
    entity: int
    groups: list[tuple[bytes, list[bytes]]]


class Subscribe(msgspec.Struct, tag="b", array_like=True):
    """A receiver wants messages of an entity from all of the node's fragments of it."""

    subscription: int
    entity: int
    incarnation: int
    subqueue: int


class Credit(msgspec.Struct, tag="c", array_like=True):
    """How many messages the receiver takes in all, counted from its subscription on."""

    subscription: int
    limit: int


class Drain(msgspec.Struct, tag="d", array_like=True):
    """Give what is there, then forget the rest of the credit and answer."""

    subscription: int


class Unsubscribe(msgspec.Struct, tag="u", array_like=True):
    """The receiver is gone."""

    subscription: int


class Peek(msgspec.Struct, tag="p", array_like=True):
    """Show messages of one fragment from a sequence number on; nothing happens to them."""

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    sequence: int
    count: int
    session: str | None = None
    omit_body: bool = False


class ReceiveDeferred(msgspec.Struct, tag="f", array_like=True):
    """Lock deferred messages of one fragment, or delete them: all of them, or none."""

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    sequences: list[int]
    delete: bool = False
    # The session they must be of, where there are sessions, and the subscription that holds it.
    session: str | None = None
    subscription: int = 0


class CancelScheduled(msgspec.Struct, tag="k", array_like=True):
    """Remove scheduled messages of one fragment: all of them, or none."""

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    sequences: list[int]


class DeleteReady(msgspec.Struct, tag="g", array_like=True):
    """Remove up to so many messages that nobody holds and that are not newer than a time."""

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    count: int
    until_ms: int


class Purge(msgspec.Struct, tag="gp", array_like=True):
    """Remove messages of one fragment that nobody holds, in any state, from a number on.

    Answered with how many, and where to go on; 0 where nothing lies behind.
    """

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    sequence: int
    count: int
    until_ms: int


class LastUse(msgspec.Struct, tag="l", array_like=True):
    """When was the entity last used at this node? (Its own question; it is no use.)"""

    entity: int
    incarnation: int


class Count(msgspec.Struct, tag="n", array_like=True):
    """How much lies in the node's fragments of these entities?

    Of each: its id, its incarnation, and the store of each partition.
    """

    lives: list[tuple[int, int, list[tuple[int, int]]]]


class Measure(msgspec.Struct, tag="i", array_like=True):
    """What has the node counted?"""


class AcceptSession(msgspec.Struct, tag="sa", array_like=True):
    """A receiver claims a session of one fragment; from then on it is subscribed to it."""

    subscription: int
    store: int
    entity: int
    incarnation: int
    partition: int
    session: str
    # Only if it has messages: the receiver takes any session, and this one was offered.
    is_next: bool


class SeekSession(msgspec.Struct, tag="ss", array_like=True):
    """A receiver takes any session: answered by an offer, which locks nothing.

    Where there is none: answered without one, or (`waits`) when there is one.
    """

    subscription: int
    entity: int
    incarnation: int
    waits: bool


class WatchSession(msgspec.Struct, tag="sw", array_like=True):
    """Answered when the subscription's session is over: by a refusal where it was lost."""

    subscription: int


class RenewSession(msgspec.Struct, tag="sr", array_like=True):
    """Extend the lock on the subscription's session."""

    subscription: int


class GetSessionState(msgspec.Struct, tag="sg", array_like=True):
    """What the subscription's session keeps."""

    subscription: int


class SetSessionState(msgspec.Struct, tag="st", array_like=True):
    """Keep this with the subscription's session; None: nothing any more."""

    subscription: int
    state: bytes | None


class ListSessions(msgspec.Struct, tag="sl", array_like=True):
    """Names of a fragment's sessions, in order, after one of them."""

    store: int
    entity: int
    incarnation: int
    partition: int
    after: str | None
    count: int
    # Not negative: only those whose state was set later.
    since_ms: int


class Publish(msgspec.Struct, tag="o", array_like=True):
    """Publish into one fragment what a bulk writer staged for it, each message once."""

    store: int
    entity: int
    incarnation: int
    partition: int
    writer: str
    batch: int
    # Files in order, and how many messages each has for this fragment.
    files: list[tuple[str, int]]


class MoveCursor(msgspec.Struct, tag="mc", array_like=True):
    """A named reader has read a fragment up to here; None: it is no more."""

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    reader: str
    position: int | None


# What is asked of one fragment by sequence number or age, not by lock.
Lookup = Peek | ReceiveDeferred | CancelScheduled | DeleteReady | Purge

SessionRequest = (
    AcceptSession
    | SeekSession
    | WatchSession
    | RenewSession
    | GetSessionState
    | SetSessionState
    | ListSessions
)

Receiving = Subscribe | Credit | Drain | Unsubscribe
Bulk = Publish | MoveCursor | Consume | GiveBack
# What names one active fragment, made where it is new; and what is not asked often.
ToFragment = (
    Send
    | Discard
    | Discharge
    | AcceptSession
    | ListSessions
    | Forward
    | SendVia
    | Publish
    | Reserve
)
Told = LastUse | Count | Measure | ListReaders
Rare = Lookup | Told | Discard | SessionRequest | Forward | SendVia | Bulk | Reserve
Request = Send | Settle | Discharge | Renew | Receiving | Rare


class Delivered(msgspec.Struct, tag="m", array_like=True, gc=False):
    """A message under lock, ready to be written to a receiver."""

    token: bytes
    payload: bytes


class Reply(msgspec.Struct, tag="y", array_like=True):
    """The answer to a request: a refusal, or what it yielded."""

    # The condition of the refusal; empty where there is none.
    condition: str = ""
    text: str = ""
    # The first position of a Send or Reserve, the new end of renewed locks, how many were deleted,
    # the age of an offered session, up to where a bulk reader was given messages.
    number: int = 0
    # Tokens whose lock was lost.
    tokens: list[bytes] = []
    # Where each message of a Send stands, where some were dropped as duplicates: 0 for these. The
    # number from which a purge goes on. How a bulk reader stands.
    positions: list[int] = []
    # What was looked up; without tokens where nothing was locked.
    messages: list[Delivered] = []
    # Sessions: the one offered, or those of a list.
    names: list[str] = []
    # The state of a session; encoded counts; the life of a store in which numbers are reserved.
    content: bytes | None = None

    @property
    def refusal(self) -> Refusal | None:
        """The refusal as an exception; None where the request was done."""
        return refusal(self.condition, self.text) if self.condition else None


DONE = Reply()


def refused(error: Refusal) -> Reply:
    """The reply that says no."""
    return Reply(error.condition, str(error))
