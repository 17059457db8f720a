"""A conversation without a socket, in a time that the test makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partibus.client.errors import ConnectionLost, QuotaExceeded, Unauthorized
from partibus.client.outbox import SENDS_WAITING_MAX
from partibus.client.protocol import IDLE_TIME_OUT_MS, Conversation
from partibus.client.tokens import TOKEN_LIFE_MS, SharedKey, SharedSignature
from partibus.engine.connection import Connection
from partibus.engine.events import Deliveries, LinkAttached, SaslInitiated
from partibus.engine.limits import Limits
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.gateway.dialogue import Request, read_request, write_response
from partibus.wire.performatives import ACCEPTED, Error, Open
from partibus.wire.values import Int

KEY = SharedKey("rule", "key")
START_MS = 1_700_000_000_000
PEER_IDLE_MS = 60_000


class Both:
    """A conversation and the service it speaks with, joined by hand."""

    def __init__(self, credentials: Any = KEY) -> None:
        self.now_ms = START_MS
        self.conversation = Conversation("host", credentials, self.now_ms, "me")
        self.server = Connection.server(
            Open("service", idle_time_out=PEER_IDLE_MS), limits=Limits(), now_ms=self.now_ms
        )
        self.lets_in = True
        self.credit = 100
        self.status = 202
        self.puts: list[Request] = []
        self._sending: SenderLink | None = None
        self.join()

    @property
    def replies(self) -> SenderLink:
        """The link on which the service sends, the last that was attached."""
        assert self._sending is not None
        return self._sending

    def join(self) -> None:
        while True:
            up, down = self.conversation.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return
            self._handle(self.server.receive_data(up, self.now_ms))
            self.conversation.receive_data(down, self.now_ms)

    def pass_ms(self, ms: int, step: int = 20_000) -> None:
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + step, end_ms)
            self.conversation.advance(self.now_ms)
            self._handle(self.server.advance(self.now_ms))
            self.join()

    def _handle(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, SaslInitiated):
                self._handle(self.server.sasl_outcome(self.lets_in))
            elif isinstance(event, LinkAttached):
                event.link.accept()
                if isinstance(event.link, SenderLink):
                    self._sending = event.link
                else:
                    event.link.grant(self.credit)
            elif isinstance(event, Deliveries):
                for delivery in event.deliveries:
                    self._answer(event.link, delivery)

    def _answer(self, link: ReceiverLink, delivery: Any) -> None:
        request = read_request(delivery.payload)
        self.puts.append(request)
        link.settle([delivery.delivery_id], ACCEPTED)
        link.grant(self.credit)
        properties = {"status-code": Int(self.status), "status-description": "so"}
        self.replies.send(b"t", write_response(request.message_id, properties, None), settled=True)


def test_a_token_is_put_once_and_renewed_before_it_ends() -> None:
    both = Both()
    first = both.conversation.authorise("orders", both.now_ms)
    both.join()
    assert first.result() is None
    assert both.conversation.authorise("orders", both.now_ms) is first
    assert len(both.puts) == 1
    both.pass_ms(int(TOKEN_LIFE_MS * 0.89))
    assert len(both.puts) == 1
    both.pass_ms(int(TOKEN_LIFE_MS * 0.02))
    assert len(both.puts) == 2
    both.pass_ms(TOKEN_LIFE_MS)
    assert len(both.puts) == 3
    assert len({request.body for request in both.puts}) == 3


def test_a_renewal_that_fails_is_tried_again_before_the_token_ends() -> None:
    both = Both()
    both.conversation.authorise("orders", both.now_ms)
    both.join()
    both.status = 500
    both.pass_ms(int(TOKEN_LIFE_MS * 0.92))
    failed = len(both.puts) - 1
    assert failed >= 2
    both.status = 202
    both.pass_ms(60_000)
    assert len(both.puts) == 1 + failed + 1


def test_a_token_that_was_refused_is_put_again_when_it_is_needed() -> None:
    both = Both()
    both.status = 401
    refused = both.conversation.authorise("orders", both.now_ms)
    both.join()
    with pytest.raises(Unauthorized):
        refused.result()
    both.status = 202
    accepted = both.conversation.authorise("orders", both.now_ms)
    both.join()
    assert accepted.result() is None


def test_a_signature_made_elsewhere_is_not_renewed() -> None:
    both = Both(SharedSignature("SharedAccessSignature sr=x&sig=y&se=1700000100&skn=z"))
    both.conversation.authorise("orders", both.now_ms)
    both.join()
    both.pass_ms(TOKEN_LIFE_MS)
    assert len(both.puts) == 1


def test_without_credentials_no_token_is_put() -> None:
    both = Both(None)
    assert both.conversation.authorise("orders", both.now_ms).result() is None
    both.join()
    assert both.puts == []


def test_the_connection_is_kept_alive_while_nothing_happens() -> None:
    both = Both()
    both.pass_ms(10 * PEER_IDLE_MS)
    assert both.conversation.error is None
    assert not both.server.is_closed


def test_a_service_that_falls_silent_is_given_up() -> None:
    both = Both()
    sending = both.conversation.sender("orders", {}).send(b"\x00\x53\x75\xa0\x01x")
    both.conversation.advance(both.now_ms + IDLE_TIME_OUT_MS)
    assert isinstance(both.conversation.error, ConnectionLost)
    with pytest.raises(ConnectionLost):
        sending.result()


def _lost(both: Both) -> None:
    both.conversation.receive_eof()


def _forced(both: Both) -> None:
    both.server.close(Error("amqp:connection:forced", "goodbye"))
    both.join()


@pytest.mark.parametrize("end", [_lost, _forced])
def test_everything_under_way_fails_when_the_connection_ends(end: Callable[[Both], None]) -> None:
    both = Both()
    outbox = both.conversation.sender("orders", {})
    inbox = both.conversation.receiver("orders", is_locking=True)
    pendings = [outbox.send(b"\x00\x53\x75\xa0\x01x"), inbox.want(1), inbox.settle(0, ACCEPTED)]
    end(both)
    for pending in pendings:
        assert isinstance(pending.error, ConnectionLost)
    assert inbox.drain().is_done
    with pytest.raises(ConnectionLost):
        both.conversation.receiver("orders", is_locking=True)
    assert both.conversation.next_deadline_ms() is None


def test_sends_wait_for_credit_up_to_a_limit_and_only_while_they_are_wanted() -> None:
    both = Both()
    both.credit = 0
    outbox = both.conversation.sender("orders", {})
    both.join()
    waiting = [outbox.send(b"x") for _ in range(SENDS_WAITING_MAX)]
    assert isinstance(outbox.send(b"x").error, QuotaExceeded)
    for pending in waiting:
        pending.forget()
    assert not any(pending.is_done for pending in waiting)
    both.join()
    assert both.puts == []


def test_a_drain_without_an_answer_does_not_keep_the_next_from_being_asked() -> None:
    both = Both()
    inbox = both.conversation.receiver("orders", is_locking=True)
    both.join()
    inbox.want(5)
    assert not inbox.drain().is_done
    both.join()
    inbox.want(5)
    both.join()
    drained = inbox.drain()
    assert not drained.is_done
    both.join()
    assert both.replies.drain
    both.replies.drained()
    both.join()
    assert drained.is_done


def test_a_service_that_does_not_let_us_in_ends_it() -> None:
    conversation = Conversation("host", KEY, START_MS, "me")
    server = Connection.server(Open("service"), limits=Limits(), now_ms=START_MS)
    server.receive_data(conversation.data_to_send(), START_MS)
    conversation.receive_data(server.data_to_send(), START_MS)
    server.receive_data(conversation.data_to_send(), START_MS)
    server.sasl_outcome(False)
    conversation.receive_data(server.data_to_send(), START_MS)
    assert isinstance(conversation.error, Unauthorized)
    assert isinstance(conversation.opened.error, Unauthorized)
