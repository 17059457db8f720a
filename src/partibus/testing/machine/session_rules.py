"""What clients of a queue with sessions do: accept, receive, renew, keep a state, close."""

from __future__ import annotations

from hypothesis import strategies as st

from partibus.broker.errors import OperationTimedOut, SessionCannotBeLocked
from partibus.testing.machine.plain_rules import SESSIONS, PlainRules
from partibus.testing.machine.rules import move
from partibus.testing.session_door import SessionInbox

STATES = (None, b"", b"one", b"another")


class SessionRules(PlainRules):
    """Rules for sessions."""

    @move(12, lambda self: self.has_sessions and self.model.available())
    def accept_next(self, _: st.DataObject) -> None:
        """Accept any session that has messages."""
        self.accept(None)

    @move(3, lambda self: self.has_sessions)
    def accept_next_or_wait(self, _: st.DataObject) -> None:
        """Accept any session, where perhaps there is none."""
        self.accept(None)

    @move(6, lambda self: self.has_sessions, session=st.sampled_from(SESSIONS))
    def accept_by_name(self, _: st.DataObject, session: str) -> None:
        """Accept a session whether it has messages or not."""
        self.accept(session)

    def accept(self, session: str | None) -> None:
        """Accept a session by name, or any that has messages."""
        available = self.model.available()
        inbox = self.real.accept(session)
        if session in self.model.held or (session is None and not available):
            (refusal,) = inbox.lost
            expected = OperationTimedOut if session is None else SessionCannotBeLocked
            assert isinstance(refusal, expected)
            self.real.leave(inbox)
            return
        assert not inbox.lost, f"{inbox.lost[0]} though there is {available}"
        accepted = inbox.session
        assert accepted is not None
        assert accepted == session or (session is None and accepted in available)
        self.model.accept(accepted)
        self.inboxes[accepted] = inbox

    def held(self, data: st.DataObject) -> tuple[str, SessionInbox]:
        """One of the sessions that are held."""
        session = data.draw(st.sampled_from(sorted(self.inboxes)))
        return session, self.inboxes[session]

    @move(24, lambda self: self.inboxes, count=st.integers(1, 5))
    def receive_of_session(self, data: st.DataObject, count: int) -> None:
        """Receive what comes next in a session."""
        session, inbox = self.held(data)
        expected = self.model.of_session(session)[:count]
        got = self.real.receive_of(inbox, count)
        taken = self.taken(expected, got)
        assert taken == expected
        self.hold(self.model, taken, got)

    @move(6, lambda self: self.inboxes)
    def leave(self, data: st.DataObject) -> None:
        """Close a session: what was not settled is there for the next."""
        session, inbox = self.held(data)
        del self.inboxes[session]
        after = self.model.copy()
        after.release(session)
        with self.power(after):
            self.real.leave(inbox)

    @move(3, lambda self: self.inboxes)
    def renew_session(self, data: st.DataObject) -> None:
        """Hold a session for longer."""
        session, inbox = self.held(data)
        reply = self.real.ask_holder(inbox, inbox.receiver.renew)
        assert reply.refusal is None
        self.model.accept(session)

    @move(6, lambda self: self.inboxes, state=st.sampled_from(STATES))
    def set_state(self, data: st.DataObject, state: bytes | None) -> None:
        """Keep something with a session."""
        session, inbox = self.held(data)
        after = self.model.copy()
        after.set_state(session, state)
        with self.power(after):
            reply = self.real.ask_holder(inbox, lambda done: inbox.receiver.set_state(state, done))
            assert reply.refusal is None

    @move(3, lambda self: self.inboxes)
    def get_state(self, data: st.DataObject) -> None:
        """What a session keeps."""
        session, inbox = self.held(data)
        reply = self.real.ask_holder(inbox, inbox.receiver.get_state)
        assert reply.refusal is None
        assert reply.content == self.model.states.get(session)
