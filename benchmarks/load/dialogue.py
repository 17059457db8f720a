"""Opening a connection: SASL, open, the token on $cbs, a session and the one link of the load.

This part waits for every answer; it is over before the clock starts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote_plus

from benchmarks.load.frames import Broken
from benchmarks.load.plan import Endpoint

from partibus.wire.codec import decode, encode
from partibus.wire.composites import compose, decode_composite
from partibus.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from partibus.wire.values import Described, ULong

CHANNEL = 1
HANDLE = 0
INCOMING_WINDOW = 1 << 20
FRAME_SIZE_MAX = 1 << 20
UNSETTLED = 0
_TIMEOUT_S = 20
_CBS_CHANNEL = 0
_TOKEN_LIFE_S = 6 * 3600

P = TypeVar("P")


@dataclass
class Opened:
    """A link that is ready: its socket, bytes read too far, and what flows have said so far."""

    sock: socket.socket
    rest: bytes
    flows: list[Flow]
    incoming_window: int
    next_outgoing_id: int
    initial_delivery_count: int


class Dialogue:
    """A blocking AMQP connection, one frame after another."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.sock = socket.create_connection((endpoint.host, endpoint.port), _TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.flows: list[Flow] = []

    def take(self, size: int) -> bytes:
        while len(self.rest) < size:
            got = self.sock.recv(65536)
            if not got:
                raise Broken("the broker closed the connection while it was opened")
            self.rest += got
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def send(self, performative: Any, channel: int, payload: bytes = b"", kind: int = 0) -> None:
        body = compose(performative) + payload
        self.sock.sendall(struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body)

    def expect(self, wanted: type[P]) -> tuple[P, bytes]:
        """The next performative of this type and its payload; flows on the way are kept."""
        while True:
            (size,) = struct.unpack(">I", self.take(4))
            frame = self.take(size - 4)
            if size == 8:
                continue
            got, after = decode_composite(frame, 4, len(frame))
            if isinstance(got, wanted):
                return got, frame[after:]
            if isinstance(got, (Close, End, Detach)):
                raise Broken(f"expected {wanted.__name__}, the broker said {got}")
            if isinstance(got, Flow) and got.handle is not None:
                self.flows.append(got)

    def open(self, name: str) -> None:
        self._exchange_header(b"AMQP\x03\x01\x00\x00")
        self.expect(SaslMechanisms)
        self.send(SaslInit("ANONYMOUS", b"load"), 0, kind=1)
        outcome, _ = self.expect(SaslOutcome)
        if outcome.code:
            raise Broken(f"SASL failed with code {outcome.code}")
        self._exchange_header(b"AMQP\x00\x01\x00\x00")
        opening = Open(name, self.endpoint.host, FRAME_SIZE_MAX, 16)
        self.send(opening, 0)
        self.expect(Open)

    def _exchange_header(self, header: bytes) -> None:
        self.sock.sendall(header)
        if (got := self.take(8)) != header:
            raise Broken(f"the broker answered {header!r} with {got!r}")

    def begin(self, channel: int) -> Begin:
        window = INCOMING_WINDOW
        self.send(Begin(None, 0, window, window, 255), channel)
        return self.expect(Begin)[0]

    def attach(self, channel: int, handle: int, address: str, *, receiver: bool) -> Attach:
        source = Source(address if receiver else "load")
        target = Target("load" if receiver else address)
        name = f"load-{channel}-{handle}-{self.sock.getsockname()[1]}"
        count = None if receiver else 0
        mode = self.endpoint.rcv_settle_mode
        attach = Attach(name, handle, receiver, UNSETTLED, mode, source, target)
        attach.initial_delivery_count = count
        self.send(attach, channel)
        return self.expect(Attach)[0]

    def authorise(self) -> None:
        """Put a token for the queue on $cbs, on a session of its own."""
        self.begin(_CBS_CHANNEL)
        self.attach(_CBS_CHANNEL, 0, "$cbs", receiver=False)
        self.attach(_CBS_CHANNEL, 1, "$cbs", receiver=True)
        self.send(Flow(0, INCOMING_WINDOW, 0, INCOMING_WINDOW, 1, 0, 10), _CBS_CHANNEL)
        audience = f"sb://{self.endpoint.host}/{self.endpoint.address}"
        request = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        sections = (
            Described(ULong(0x73), ["1", None, None, None, "load"]),
            Described(ULong(0x74), request),
            Described(ULong(0x77), signature(self.endpoint, audience)),
        )
        transfer = Transfer(0, 0, b"token", 0, True)
        self.send(transfer, _CBS_CHANNEL, b"".join(map(encode, sections)))
        _, payload = self.expect(Transfer)
        answer = _application_properties(payload)
        if answer.get("status-code") not in (200, 202):
            raise Broken(f"the token was refused: {answer}")
        self.flows.clear()


def signature(endpoint: Endpoint, audience: str) -> str:
    """A shared access signature for the audience."""
    ends = int(time.time()) + _TOKEN_LIFE_S
    resource = quote_plus(audience)
    digest = hmac.digest(endpoint.key.encode(), f"{resource}\n{ends}".encode(), hashlib.sha256)
    signed = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signed}&se={ends}&skn={endpoint.key_name}"


def _application_properties(payload: bytes) -> dict[str, Any]:
    pos = 0
    while pos < len(payload):
        value, pos = decode(payload, pos)
        if isinstance(value, Described) and value.descriptor == 0x74:
            assert isinstance(value.value, dict)
            return value.value
    return {}


def open_link(endpoint: Endpoint, name: str, *, receiver: bool) -> Opened:
    """A connection with one link to the queue, ready for the load."""
    dialogue = Dialogue(endpoint)
    dialogue.open(name)
    if endpoint.key:
        dialogue.authorise()
    begin = dialogue.begin(CHANNEL)
    attached = dialogue.attach(CHANNEL, HANDLE, endpoint.address, receiver=receiver)
    dialogue.sock.setblocking(False)
    return Opened(
        dialogue.sock,
        dialogue.rest,
        dialogue.flows,
        begin.incoming_window,
        begin.next_outgoing_id,
        attached.initial_delivery_count or 0,
    )
