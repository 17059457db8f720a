"""What wrong tokens cost honest clients: `python -m benchmarks.wrong_tokens`.

Honest clients send as fast as they are confirmed; rounds with and without a stranger who shows
1,000 wrong tokens a second take turns, and the ratio of their rates is the result. A connection is
closed after five wrong tokens (after one, while there are many), so the stranger connects 200 times
a second. With `--http` it asks over HTTP instead of AMQP. It replays recorded bytes and costs
little itself, but shares the machine's cores with the broker and the honest clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import select
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.subjects import CONVENTIONAL, Partibus

from partibus.client import AsyncClient, Message
from partibus.engine.connection import Connection
from partibus.engine.limits import Limits
from partibus.wire.codec import encode
from partibus.wire.performatives import Attach, Open, Source, Target

TOKENS_PER_CONNECTION = 5
TOKENS_PER_SECOND = 1_000
HONEST_CLIENTS = 4
IN_FLIGHT = 64
BODY = bytes(1024)
# Honest clients are slowed by no more than half.
RATIO_LEAST = 0.5
_WRONG = (
    "SharedAccessSignature sr=sb%3A%2F%2Fhost%2Fconventional&sig=d3Jvbmc%3D&se=4102444800"
    "&skn=RootManageSharedAccessKey"
)


def record(port: int) -> bytes:
    """What a client says that shows five wrong tokens, from its first byte to its last."""
    engine = Connection.client(
        Open(container_id="stranger", hostname="host"),
        limits=Limits(),
        now_ms=0,
        mechanism="ANONYMOUS",
    )
    session = engine.begin()
    ends = {"source": Source(address="$cbs"), "target": Target(address="$cbs")}
    answers = engine.attach_receiver(session, Attach(name="answers", **ends))
    answers.grant(100)
    requests = engine.attach_sender(session, Attach(name="requests", **ends))
    said = b""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        while not requests.credit:
            data = engine.data_to_send()
            said += data
            stream.sendall(data)
            engine.receive_data(stream.recv(65_536), 0)
    properties = {"operation": "put-token", "type": "jwt", "name": "sb://host/conventional"}
    for number in range(TOKENS_PER_CONNECTION):
        payload = (
            b"\x00\x53\x73" + encode([f"request-{number}"])
            + b"\x00\x53\x74" + encode(properties)
            + b"\x00\x53\x77" + encode(_WRONG)
        )  # fmt: skip
        requests.send(bytes([number]), payload)
    return said + engine.data_to_send()


def record_http() -> bytes:
    """The same over HTTP: five requests, each with a wrong token."""
    request = f"GET /conventional HTTP/1.1\r\nHost: host\r\nAuthorization: {_WRONG}\r\n\r\n"
    return request.encode() * TOKENS_PER_CONNECTION


def attack(port: int, said: bytes, authority: str | None, stop: Event, shown: object) -> None:
    """Show wrong tokens at an even pace until told to stop."""
    context = ssl.create_default_context(cafile=authority) if authority else None
    pause_s = TOKENS_PER_CONNECTION / TOKENS_PER_SECOND
    open_now: list[socket.socket] = []
    due_s = time.monotonic()
    while not stop.is_set():
        time.sleep(max(0.0, due_s - time.monotonic()))
        due_s += pause_s
        stream: socket.socket = socket.create_connection(("127.0.0.1", port))
        if context is not None:
            stream = context.wrap_socket(stream, server_hostname="127.0.0.1")
        stream.sendall(said)
        open_now.append(stream)
        shown.value += TOKENS_PER_CONNECTION  # type: ignore[attr-defined]
        open_now = reap(open_now)
    for stream in open_now:
        stream.close()


def reap(streams: list[socket.socket]) -> list[socket.socket]:
    """Read what the broker says, and forget connections that it has closed."""
    readable, _, _ = select.select(streams, [], [], 0)
    for stream in readable:
        try:
            is_over = not stream.recv(65_536)
        except OSError:
            is_over = True
        if is_over:
            stream.close()
            streams.remove(stream)
    return streams


async def send_honestly(connection_string: str, seconds: float) -> float:
    """The rate at which messages are confirmed to honest clients."""
    sent = 0

    async def work(client: AsyncClient, until_s: float) -> None:
        nonlocal sent
        async with client.sender(CONVENTIONAL) as sender:
            await sender.send(Message(BODY))
            while time.monotonic() < until_s:
                await sender.send([Message(BODY) for _ in range(IN_FLIGHT)])
                sent += IN_FLIGHT

    clients = [AsyncClient.from_connection_string(connection_string) for _ in range(HONEST_CLIENTS)]
    begun_s = time.monotonic()
    try:
        await asyncio.gather(*(work(client, begun_s + seconds) for client in clients))
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    return sent / (time.monotonic() - begun_s)


def under_attack(broker: Partibus, said: bytes, authority: str | None, do: Callable[[], float]):  # type: ignore[no-untyped-def]
    """Do something while wrong tokens come; what it gave, tokens a second, and their CPU."""
    context = multiprocessing.get_context("spawn")
    stop, shown = context.Event(), context.Value("l", 0)
    stranger = context.Process(target=attack, args=(broker.port, said, authority, stop, shown))
    stranger.start()
    while not shown.value:
        time.sleep(0.01)
    before, begun_s, cpu_s = shown.value, time.monotonic(), broker.cpu_seconds()
    gave = do()
    tokens, seconds = shown.value - before, time.monotonic() - begun_s
    used_s = broker.cpu_seconds() - cpu_s
    stop.set()
    stranger.join()
    return gave, tokens / seconds, used_s / max(tokens, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tls", action="store_true", help="the stranger shakes hands each time")
    parser.add_argument("--http", action="store_true", help="the stranger asks over HTTP")
    options = parser.parse_args()
    broker = Partibus("partibus", Path(sys.executable), nodes=max(2, os.cpu_count() or 1))
    try:
        said = record_http() if options.http else record(broker.port)
        found = broker.data / "namespace" / "tls" / "authority.pem"
        authority = str(found) if options.tls else None

        def honest() -> float:
            return asyncio.run(send_honestly(broker.connection_string, options.seconds))

        honest()
        quiet, attacked, tokens = [], [], []
        for _ in range(options.rounds):
            quiet.append(honest())
            rate, token_rate, _ = under_attack(broker, said, authority, honest)
            attacked.append(rate)
            tokens.append(token_rate)
        _, _, cpu_s = under_attack(
            broker, said, authority, lambda: time.sleep(options.seconds) or 0.0
        )
    finally:
        broker.stop()
    ratio = statistics.median(attacked) / statistics.median(quiet)
    result = {
        "honest messages/s, quiet": round(statistics.median(quiet)),
        "honest messages/s, attacked": round(statistics.median(attacked)),
        "wrong tokens/s": round(statistics.median(tokens)),
        "broker CPU per wrong token, us": round(cpu_s * 1e6),
        "ratio": round(ratio, 2),
        "wanted at least": RATIO_LEAST,
    }
    print(json.dumps(result, indent=2))
    return 0 if ratio >= RATIO_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
