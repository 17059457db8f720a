"""The oracle's sessions: who holds one, until when, and what it keeps.

A session's messages are locked as long as it is held. Its end by time counts a failed delivery
for each of them, its end by its holder counts none.
"""

from __future__ import annotations

from partibus.broker.records import State
from partibus.testing.machine.model import Message, QueueModel


class SessionModel(QueueModel):
    """A queue whose messages may belong to sessions."""

    # When the lock of each session that is held ends.
    held: dict[str, int]
    states: dict[str, bytes]

    def begin(self) -> None:
        """Nobody holds anything, nothing is kept."""
        self.held = {}
        self.states = {}

    def of_session(self, session: str) -> list[Message]:
        """What the holder of a session may get now, in order."""
        return [each for each in self.ready() if each.session == session]

    def available(self) -> set[str]:
        """Sessions that may be had without a name."""
        return {each.session for each in self.ready() if each.session} - self.held.keys()

    def listed(self) -> set[str]:
        """Sessions that have messages or a state."""
        alive = [m for m in self.messages.values() if not m.is_dead and m.state == State.ACTIVE]
        return {each.session for each in alive if each.session} | self.states.keys()

    def accept(self, session: str) -> None:
        """Somebody holds it from now on; or goes on holding it."""
        self.held[session] = self.now_ms + self.queue.lock_ms

    def release(self, session: str) -> None:
        """The holder gives it up: what was not settled is there for the next."""
        del self.held[session]
        for message in self._outstanding(session):
            message.token = b""
            if message.state == State.ACTIVE and message.is_over(self.now_ms):
                self.expire(message)

    def set_state(self, session: str, state: bytes | None) -> None:
        """Keep this with the session."""
        self.states.pop(session, None)
        if state is not None:
            self.states[session] = state

    def lock(self, message: Message, token: bytes) -> None:
        """A receiver took it; from a session, as long as it is held."""
        super().lock(message, token)
        if self.queue.requires_session and not message.is_dead:
            message.until_ms = 0

    def moments(self) -> list[int]:
        """When something will happen by itself."""
        return super().moments() + list(self.held.values())

    def strike(self) -> None:
        """What happens at this moment."""
        for session, until_ms in list(self.held.items()):
            if until_ms <= self.now_ms:
                del self.held[session]
                for message in self._outstanding(session):
                    self.failed(message)
        super().strike()

    def crash(self) -> None:
        """The power failed: nobody holds anything."""
        super().crash()
        self.held.clear()

    def _outstanding(self, session: str) -> list[Message]:
        return [each for each in self.locked() if each.session == session and not each.is_dead]
