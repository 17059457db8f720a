"""A link on which a client receives the messages of one session (SPEC 3.13).

The attach is answered when the session is the client's: with its real id in the filter and the end
of its lock; until then, and at most as long as the client said, the answer is held back. The end
of the link is the end of the lock, and the end of the lock that of the link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from partibus.broker.descriptions import Entity
from partibus.broker.errors import InvalidArgument, InvalidOperation, NotImplementedHere
from partibus.broker.message import KEY_LENGTH_MAX
from partibus.broker.records import SubQueue
from partibus.engine.link import SenderLink
from partibus.gateway.bindings import Carrier
from partibus.gateway.consumer import Consumer
from partibus.gateway.outcomes import as_optional_text
from partibus.runtime.receiving import ReceiveMode, Receiver
from partibus.runtime.session_receiving import SessionReceiver
from partibus.runtime.settling import SESSION_LOCK_LOST
from partibus.wire.performatives import Source
from partibus.wire.values import Described, Long, Symbol

SESSION_FILTER = "com.microsoft:session-filter"
NON_EXCLUSIVE_FILTER = "com.microsoft:non-exclusive-session-filter"
TIMEOUT_PROPERTY = "com.microsoft:timeout"
LOCKED_UNTIL_PROPERTY = "com.microsoft:locked-until-utc"
TRACKING_PROPERTY = "com.microsoft:tracking-id"
ACCEPT_MS_DEFAULT = 65_000
# Nobody waits longer for a session; clients that want to ask again.
ACCEPT_MS_MAX = 3_600_000
# .NET's ticks are 100 ns since the year 1.
TICKS_1970 = 621_355_968_000_000_000
TICKS_PER_MS = 10_000


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which session a client wants, and how it spelled that. No id: the next available one."""

    id: str | None
    key: object
    value: object

    def answer(self, session: str) -> dict[object, object]:
        """The same with the real id."""
        if isinstance(self.value, Described):
            return {self.key: Described(self.value.descriptor, session)}
        return {self.key: session}


def read_session_filter(source: object, entity: Entity, subqueue: SubQueue) -> SessionFilter | None:
    """The session filter of an attach; None where there is none and none is needed."""
    filters = (source.filter if isinstance(source, Source) else None) or {}
    wanted = None
    for key, value in filters.items():
        name = as_optional_text(key) or ""
        if name.startswith(NON_EXCLUSIVE_FILTER):
            raise NotImplementedHere("Sessions cannot be shared here: use an exclusive receiver.")
        if name == SESSION_FILTER:
            plain = value.value if isinstance(value, Described) else value
            if plain is not None and not isinstance(plain, str | bytes):
                raise InvalidArgument("The session filter names a session by text, or is null.")
            wanted = SessionFilter(as_optional_text(plain), key, value)
    # The dead letters of an entity with sessions are a plain queue.
    if entity.description.requires_session and subqueue is SubQueue.ACTIVE:
        if wanted is None:
            raise InvalidOperation(
                f"It is not possible for '{entity.name}' to create a non-sessionful message "
                "receiver: it requires sessions."
            )
        if wanted.id is not None and len(wanted.id) > KEY_LENGTH_MAX:
            raise InvalidArgument(f"A session id has at most {KEY_LENGTH_MAX} characters.")
        return wanted
    if wanted is not None:
        raise InvalidOperation(
            f"A sessionful message receiver cannot be created on '{entity.name}': it does not "
            "require sessions."
        )
    return None


class SessionConsumer(Consumer):
    """The sending end of a client's session receiver."""

    lock_lost = SESSION_LOCK_LOST

    def __init__(
        self,
        carrier: Carrier,
        link: SenderLink,
        path: str,
        entity: Entity,
        session_filter: SessionFilter,
    ) -> None:
        self._filter = session_filter
        self._is_begun = False
        super().__init__(carrier, link, path, entity, SubQueue.ACTIVE)
        # It begins when this turn ends, when the connection knows of it.
        carrier.wake(self)

    def _receive(self, entity: Entity, subqueue: SubQueue, mode: ReceiveMode) -> Receiver:
        node = self._carrier.node
        self.receiver = node.adopt(
            lambda number: SessionReceiver(
                node,
                number,
                entity,
                self._filter.id,
                self._timeout_ms(),
                mode,
                self._deliver,
                self._lost,
                self._accepted,
            )
        )
        return self.receiver

    receiver: SessionReceiver

    def _timeout_ms(self) -> int:
        attach = self._link.peer_attach
        asked = (attach.properties or {}).get(TIMEOUT_PROPERTY) if attach is not None else None
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            return ACCEPT_MS_DEFAULT
        return min(int(asked), ACCEPT_MS_MAX)

    @property
    def session_id(self) -> str | None:
        """The session that this link holds; None while there is none."""
        return self.receiver.session if self.receiver.holds else None

    def _accepted(self, session: str, until_ms: int) -> None:
        link, attach = self._link, self._link.peer_attach
        assert attach is not None
        ticks = until_ms * TICKS_PER_MS + TICKS_1970
        link.accept(
            source=replace(attach.source, filter=self._filter.answer(session)),
            max_message_size=self._entity.description.max_message_bytes,
            properties={
                Symbol(LOCKED_UNTIL_PROPERTY): Long(ticks),
                Symbol(TRACKING_PROPERTY): self._carrier.tracking.new_id(),
            },
        )
        self._carrier.wake(self)
        if link.credit:
            self.flowed()

    def flush(self) -> None:
        """Begin, or do what every consumer does."""
        if not self._is_begun:
            self._is_begun = True
            if not self._is_over:
                self._receiver.start()
        super().flush()

    def close(self) -> None:
        """Settle what the client settled before it left, then let the session go."""
        super().flush()
        super().close()
