"""Receives from a session: finding one, claiming it, and then its messages in order.

A session by name is claimed in its fragment. For the next available one all nodes are asked what
they have; the oldest offer is claimed, and if somebody was quicker the search goes on until the
client's time is over. A lock exists only after a claim: an offer that nobody takes costs nothing.
From then on this is a receiver with a single source, until the lock is lost or given up.
"""

from __future__ import annotations

from collections.abc import Callable

from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    FragmentUnavailable,
    OperationTimedOut,
    Refusal,
    SessionCannotBeLocked,
    SessionLockLost,
)
from partibus.broker.partitioning import index_of
from partibus.broker.records import SubQueue
from partibus.runtime.clock import Timer
from partibus.runtime.receiving import ASK_MAX, Deliver, Nodes, ReceiveMode, Receiver
from partibus.runtime.requests import (
    AcceptSession,
    GetSessionState,
    RenewSession,
    Reply,
    SeekSession,
    SetSessionState,
    Unsubscribe,
    WatchSession,
)
from partibus.runtime.source import Source

# How long slower nodes are waited for before an offer is taken, or all are asked to wait.
OFFERS_MS = 100
# Nodes that could not be asked are asked again after this.
SEEK_AGAIN_MS = 500

# Called with the session's id and the end of its lock.
Accepted = Callable[[str, int], None]


class SessionReceiver(Receiver):
    """Receives from one session, for one link."""

    def __init__(
        self,
        node: Nodes,
        number: int,
        entity: Entity,
        session: str | None,
        timeout_ms: int,
        mode: ReceiveMode,
        deliver: Deliver,
        lost: Callable[[Refusal], None],
        accepted: Accepted,
    ) -> None:
        super().__init__(node, number, entity, SubQueue.ACTIVE, mode, deliver, lost)
        self._nodes = list(self._sources)
        # Filled by the claim.
        self._sources = {}
        self.session = session
        self._is_named = session is not None
        self._timeout_ms = timeout_ms
        self._accepted = accepted
        self._claiming = False
        self._is_late = False
        # Offers by the time since when their sessions wait, while not all nodes have answered.
        self._offers: list[tuple[int, str]] = []
        self._unanswered = 0
        self._waits = len(self._nodes) == 1
        # Counts searches, so that a late answer is not taken for a newer one's.
        self._search = 0
        self._timers: list[Timer] = []

    def start(self) -> None:
        """Claim the session that was named, or look for one."""
        if self.session is not None:
            self._claim(self.session)
            return
        self._timers.append(self._later(self._timeout_ms, self._time_out))
        self._seek()

    @property
    def holds(self) -> bool:
        """Whether the session is ours, as far as we know."""
        return bool(self._sources) and not self._closed

    # The search -------------------------------------------------------------------------------

    def _seek(self) -> None:
        if self._closed or self._claiming or self._sources:
            return
        if self._is_late:
            self._give_up()
            return
        self._search += 1
        search = self._search
        self._offers = []
        # One for ourselves: a node of our own process answers before the next is asked.
        self._unanswered = len(self._nodes) + 1
        if not self._waits:
            self._later(OFFERS_MS, lambda: self._decide(search))
        for index in self._nodes:
            entity = self.entity
            request = SeekSession(self.number, entity.id, entity.incarnation, self._waits)
            self._node.peer(index).call(request, lambda reply: self._answered(search, reply))
        self._one_answered(search)

    def _answered(self, search: int, reply: Reply) -> None:
        if self._closed or self._claiming or self._sources or search != self._search:
            return
        if reply.names:
            self._offers.append((reply.number, reply.names[0]))
            if self._waits:
                self._decide(search)
                return
        self._one_answered(search)

    def _one_answered(self, search: int) -> None:
        if search == self._search:
            self._unanswered -= 1
            if not self._unanswered:
                self._decide(search)

    def _decide(self, search: int) -> None:
        """Take the oldest offer; without one, ask all nodes to wait for one, or ask again."""
        if self._closed or self._claiming or self._sources or search != self._search:
            return
        if self._offers:
            self._waits = len(self._nodes) == 1
            self._claim(min(self._offers)[1])
        elif not self._waits:
            self._waits = True
            self._seek()
        else:
            # No node could be asked to wait.
            self._search += 1
            self._later(SEEK_AGAIN_MS, self._seek)

    def _time_out(self) -> None:
        self._is_late = True
        if not self._claiming and not self._sources and not self._closed:
            self._give_up()

    def _give_up(self) -> None:
        self.lost(
            OperationTimedOut(
                f"No session of '{self.entity.name}' became available within "
                f"{self._timeout_ms} ms; try again."
            )
        )

    # The claim --------------------------------------------------------------------------------

    def _claim(self, session: str) -> None:
        self._claiming = True
        entity, node = self.entity, self._node
        partition = entity.partitions[index_of(session, entity.fragments)]
        store, index = node.place_of(entity, partition)
        if not self._is_named:
            for other in self._nodes:
                if other != index:
                    node.peer(other).tell(Unsubscribe(self.number))
        request = AcceptSession(
            self.number,
            store,
            entity.id,
            entity.incarnation,
            partition,
            session,
            not self._is_named,
        )

        def claimed(reply: Reply) -> None:
            self._claimed(index, session, reply)

        # Where the receiver goes meanwhile, that node must hear of it.
        self._nodes = self._nodes if not self._is_named else [index]
        node.peer(index).call(request, claimed)

    def _claimed(self, index: int, session: str, reply: Reply) -> None:
        self._claiming = False
        if self._closed:
            return
        refusal = reply.refusal
        if refusal is None:
            self._hold(index, session, reply.number)
        elif self._is_named:
            self.lost(refusal)
        elif isinstance(refusal, SessionCannotBeLocked):
            # Somebody was quicker.
            self._seek()
        elif isinstance(refusal, FragmentUnavailable) and not self._is_late:
            self._later(SEEK_AGAIN_MS, self._seek)
        else:
            self.lost(refusal)

    def _hold(self, index: int, session: str, until_ms: int) -> None:
        self.session = session
        source = Source(index)
        source.up = True
        self._sources[index] = source
        self._node.peer(index).call(WatchSession(self.number), self._over)
        if not self._closed:
            self._accepted(session, until_ms)
            self._ask()

    def _over(self, reply: Reply) -> None:
        refusal = reply.refusal
        if self._closed or refusal is None:
            return
        if isinstance(refusal, FragmentUnavailable):
            # With the broker of its fragment the lock is gone.
            refusal = SessionLockLost(f"The session '{self.session}' was lost: {refusal}")
        self.lost(refusal)

    def close(self) -> None:
        """The receiver is gone; its session is free at once."""
        for timer in self._timers:
            timer.cancel()
        if self._closed or self._sources:
            super().close()
            return
        self._closed = True
        for index in self._nodes:
            self._node.peer(index).tell(Unsubscribe(self.number))
        self._node.forget_receiver(self.number)

    def peer_changed(self, index: int, up: bool) -> None:
        """A node came or went. What was asked of it was answered; a newcomer is asked, too."""
        if up and index in self._nodes and not self._is_named:
            self._seek()

    def _share_out(self) -> None:
        """Nobody shares a session: its one source is asked for exactly what we take."""
        if self._drained is None:
            want = 0 if self._paused or self._closed else max(self._credit - len(self._cache), 0)
            for source in self._sources.values():
                self._limit(source, source.received + min(want, ASK_MAX))

    # What the holder may do -------------------------------------------------------------------

    def renew(self, done: Callable[[Reply], None]) -> None:
        """Extend the lock; the reply's number is its new end."""
        self._call(RenewSession(self.number), done)

    def get_state(self, done: Callable[[Reply], None]) -> None:
        """What the session keeps: the reply's content."""
        self._call(GetSessionState(self.number), done)

    def set_state(self, state: bytes | None, done: Callable[[Reply], None]) -> None:
        """Keep this with the session; done when it is durable."""
        self._call(SetSessionState(self.number, state), done)

    def _call(
        self,
        request: RenewSession | GetSessionState | SetSessionState,
        done: Callable[[Reply], None],
    ) -> None:
        (index,) = self._sources
        self._node.peer(index).call(request, done)

    def _later(self, span_ms: int, what: Callable[[], None]) -> Timer:
        clock = self._node.clock
        return clock.call_at(clock.now_ms() + span_ms, what)
