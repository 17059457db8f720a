"""One connection to the service, without a socket: the engine in client role, and our links on it.

Bytes in, bytes out, and answers to what was asked; told the time like the engine below. All links
of a connection are on one AMQP session, because a transaction may span them. Waiting, retrying and
connecting again are not done here: a conversation that has ended stays ended.
"""

from __future__ import annotations

from typing import Final, TypeVar

from partibus.client.authorisation import Authorisation
from partibus.client.dialogue import Dialogue
from partibus.client.errors import ConnectionLost, MessagingError, error_of
from partibus.client.inbox import Inbox
from partibus.client.link_end import LinkEnd, ending
from partibus.client.outbox import Outbox
from partibus.client.pending import Pending
from partibus.client.tokens import Credentials
from partibus.engine.connection import Connection
from partibus.engine.errors import ProtocolError
from partibus.engine.events import (
    Closed,
    Deliveries,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
    SessionEnded,
    Settlements,
)
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.wire.performatives import Attach, Coordinator, Error, Open, Source, Target

IDLE_TIME_OUT_MS: Final = 120_000
# A message of the largest entities, and what a window should hold of small ones.
LIMITS: Final = Limits(message_size_max=110 * 1_048_576, handle_max=255, links_per_session_max=256)

_UNSETTLED, _SETTLED = 0, 1
_FIRST, _SECOND = 0, 1
SESSION_FILTER: Final = "com.microsoft:session-filter"
# A connection that ends with one of these would end so again; any other end is a loss.
_FINAL_CONDITIONS: Final = (
    "amqp:unauthorized-access",
    "amqp:not-found",
    "amqp:not-allowed",
    "amqp:not-implemented",
)

EndT = TypeVar("EndT", bound=LinkEnd)


class Conversation:
    """One connection, from its first byte to its last."""

    def __init__(
        self, host: str, credentials: Credentials | None, now_ms: int, container_id: str
    ) -> None:
        self.opened: Pending[None] = Pending()
        # Why it ended; None while it has not.
        self.error: MessagingError | None = None
        self._container_id = container_id
        self._engine = Connection.client(
            Open(container_id=container_id, hostname=host, idle_time_out=IDLE_TIME_OUT_MS),
            limits=LIMITS,
            now_ms=now_ms,
        )
        self._session = self._engine.begin()
        self._ends: set[LinkEnd] = set()
        self._links = 0
        self._dialogues: dict[str, Dialogue] = {}
        self._host = host
        self._credentials = credentials
        self._authorisation: Authorisation | None = None
        self._coordinator: Outbox | None = None

    # The transport's side ---------------------------------------------------------------------

    def receive_data(self, data: bytes, now_ms: int) -> None:
        """Take what the transport gave."""
        self._handle(self._engine.receive_data(data, now_ms))

    def receive_eof(self) -> None:
        """The transport is gone."""
        self._handle(self._engine.receive_eof())

    def data_to_send(self) -> bytes:
        """What is to be written now; what waited for room to be written follows."""
        data = self._engine.data_to_send()
        if data:
            for end in list(self._ends):
                end.on_flowed()
            data += self._engine.data_to_send()
        return data

    def next_deadline_ms(self) -> int | None:
        """When `advance` should be called, if nothing happens before."""
        deadlines = [self._engine.next_deadline_ms()]
        if self._authorisation is not None and not self._engine.is_closed:
            deadlines.append(self._authorisation.next_deadline_ms())
        return min((each for each in deadlines if each is not None), default=None)

    def advance(self, now_ms: int) -> None:
        """Do what the time demands: keep the connection alive, renew tokens."""
        self._handle(self._engine.advance(now_ms))
        if self._authorisation is not None and self.error is None:
            self._authorisation.advance(now_ms)

    def close(self) -> None:
        """Say goodbye; `is_closed` when the service has too."""
        self._engine.close()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._engine.is_closed

    # What is asked for ------------------------------------------------------------------------

    def authorise(self, entity: str, now_ms: int) -> Pending[None]:
        """Put a token for an entity, unless that was done or nobody asks for tokens."""
        if self._credentials is None or self.error is not None:
            done: Pending[None] = Pending()
            done.resolve(None) if self.error is None else done.fail(self.error)
            return done
        if self._authorisation is None or self._authorisation.dialogue.is_over:
            dialogue = self.dialogue("$cbs")
            self._authorisation = Authorisation(dialogue, self._credentials, self._host)
        return self._authorisation.put(entity, now_ms)

    def dialogue(self, address: str) -> Dialogue:
        """The way to ask a node; the links are attached when it is first asked for."""
        known = self._dialogues.get(address)
        if known is not None and not known.is_over:
            return known
        reply_to = self._link_name(address)
        responses = self._attach_receiver(
            Attach(name=reply_to, source=Source(address=address), target=Target(address=reply_to))
        )
        requests = self._attach_sender(
            Attach(
                name=f"{reply_to}-requests",
                source=Source(address=reply_to),
                target=Target(address=address),
            )
        )
        dialogue = Dialogue(requests, responses, reply_to)
        self._ends.update(dialogue.ends)
        self._dialogues[address] = dialogue
        return dialogue

    def sender(self, entity: str, properties: dict[object, object]) -> Outbox:
        """A link on which messages are sent to an entity."""
        name = self._link_name(entity)
        attach = Attach(
            name=name,
            snd_settle_mode=_UNSETTLED,
            rcv_settle_mode=_FIRST,
            source=Source(address=name),
            target=Target(address=entity),
            properties=properties or None,
        )
        return self._watch(Outbox(self._attach_sender(attach)))

    def coordinator(self) -> Outbox:
        """The link on which transactions are declared and discharged, one for all of them."""
        if self._coordinator is not None and self._coordinator.error is None:
            return self._coordinator
        name = self._link_name("coordinator")
        attach = Attach(
            name=name,
            snd_settle_mode=_UNSETTLED,
            rcv_settle_mode=_FIRST,
            source=Source(address=name),
            target=Coordinator(),
        )
        self._coordinator = self._watch(Outbox(self._attach_sender(attach)))
        return self._coordinator

    def receiver(
        self,
        address: str,
        *,
        is_locking: bool,
        filters: dict[object, object] | None = None,
        properties: dict[object, object] | None = None,
    ) -> Inbox:
        """A link on which messages come, locked (to be settled) or deleted as they are sent."""
        name = self._link_name(address)
        attach = Attach(
            name=name,
            snd_settle_mode=_UNSETTLED if is_locking else _SETTLED,
            rcv_settle_mode=_SECOND if is_locking else _FIRST,
            source=Source(address=address, filter=filters),
            target=Target(address=name),
            properties=properties,
        )
        return self._watch(Inbox(self._attach_receiver(attach)))

    def _watch(self, end: EndT) -> EndT:
        self._ends.add(end)
        return end

    def _link_name(self, address: str) -> str:
        self._links += 1
        return f"{address}-{self._container_id}-{self._links}"

    def _attach_sender(self, attach: Attach) -> SenderLink:
        self._check()
        try:
            return self._engine.attach_sender(self._session, attach)
        except ProtocolError as error:
            raise error_of(error.error, MessagingError) from error

    def _attach_receiver(self, attach: Attach) -> ReceiverLink:
        self._check()
        try:
            return self._engine.attach_receiver(self._session, attach)
        except ProtocolError as error:
            raise error_of(error.error, MessagingError) from error

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    # What happened ----------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, (LinkAttached, LinkFlowed, Deliveries, Settlements, LinkDetached)):
                self._handle_link(event)
            elif isinstance(event, Opened):
                self.opened.resolve(None)
            elif isinstance(event, SessionEnded):
                # All our links were on it: there is nothing left to go on with.
                self._end(event.error)
                self._engine.close()
            elif isinstance(event, Closed):
                self._end(event.error)

    def _handle_link(
        self, event: LinkAttached | LinkFlowed | Deliveries | Settlements | LinkDetached
    ) -> None:
        end = event.link.context
        if not isinstance(end, LinkEnd):
            if isinstance(event, LinkAttached):
                event.link.refuse(Error("amqp:not-allowed", "a client is not attached to"))
        elif isinstance(event, LinkAttached):
            end.on_attached(event.attach)
        elif isinstance(event, LinkFlowed):
            end.on_flowed()
        elif isinstance(event, Deliveries):
            end.on_deliveries(event.deliveries)
        elif isinstance(event, Settlements):
            end.on_settled(event)
        else:
            self._ends.discard(end)
            end.on_ended(ending(event.error))

    def _end(self, error: Error | None) -> None:
        if self.error is not None:
            return
        self.error = _loss(error)
        self.opened.fail(self.error)
        ends, self._ends = self._ends, set()
        for end in ends:
            end.on_ended(self.error)


def _loss(error: Error | None) -> MessagingError:
    if error is None:
        return ConnectionLost("the connection was closed")
    if error.condition in _FINAL_CONDITIONS:
        return error_of(error, ConnectionLost)
    return ConnectionLost(error.description or "the connection was closed", error.condition)
