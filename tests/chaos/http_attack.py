"""A stranger with a good token who does to the HTTP door what it is not made for.

A program of its own, so that it takes no time from the clients in the test: it attacks until the
end of its input, says so when every attack was answered once, and prints what was answered in the
end, by kind of attack.
"""

from __future__ import annotations

import collections
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

LEVELS = 12
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY l0 "boom">'
    + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, LEVELS))
    + f"]><entry><content><QueueDescription>&l{LEVELS - 1};</QueueDescription></content></entry>"
)
OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE e [<!ENTITY f SYSTEM "file:///etc/hostname">]>'
    "<entry><content><QueueDescription><UserMetadata>&f;</UserMetadata></QueueDescription>"
    "</content></entry>"
)
DEEP = "<a>" * 60_000
WIDE = "<entry>" + "<a/>" * 60_000 + "</entry>"
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
SLOW_CONNECTIONS = 100
GIGABYTE = 1 << 30

PORT, TOKEN = int(sys.argv[1]), sys.argv[2]
is_over = threading.Event()
answers: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)


def head(length: str, path: str = "/attacked") -> bytes:
    return (
        f"PUT {path}?api-version=2021-05 HTTP/1.1\r\nHost: h\r\nAuthorization: {TOKEN}\r\n"
        f"{length}\r\n\r\n"
    ).encode()


def status(stream: socket.socket) -> str:
    try:
        found = stream.recv(65_536).split(b" ")
    except OSError:
        return "cut"
    return found[1].decode() if len(found) > 1 else "cut"


def say(pieces: Iterator[bytes] | list[bytes]) -> str:
    """Say all this until something is answered or the connection is cut."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=20) as stream:
        try:
            for piece in pieces:
                stream.sendall(piece)
                if is_over.is_set():
                    return "not finished"
        except OSError:
            # Cut while we spoke; perhaps an answer came before.
            return status(stream)
        return status(stream)


def document(text: str) -> list[bytes]:
    body = text.encode()
    return [head(f"Content-Length: {len(body)}"), body]


def oversized() -> Iterator[bytes]:
    yield head(f"Content-Length: {GIGABYTE}")
    while True:
        yield b"x" * 65_536


def endless(path: str) -> Iterator[bytes]:
    yield head("Transfer-Encoding: chunked", path)
    while True:
        yield CHUNK


def endless_head() -> Iterator[bytes]:
    yield head("X-A: a")[:-2]
    while True:
        yield b"X-More: " + b"x" * 4_096 + b"\r\n"


ATTACKS: dict[str, Callable[[], Iterator[bytes] | list[bytes]]] = {
    "bomb": lambda: document(BOMB),
    "outside": lambda: document(OUTSIDE),
    "deep": lambda: document(DEEP),
    "wide": lambda: document(WIDE),
    "oversized": oversized,
    "endless": lambda: endless("/attacked"),
    "endless message": lambda: endless("/attacked/messages"),
    "endless head": endless_head,
}


def attack(names: list[str]) -> None:
    while not is_over.is_set():
        for name in names:
            if not is_over.is_set():
                answers[name][say(ATTACKS[name]())] += 1
                # What kind of attack it is counts here, not how many there are.
                time.sleep(0.02)


def be_slow() -> None:
    """Many who say one byte at a time, of a head and of a body."""
    streams = []
    for number in range(SLOW_CONNECTIONS):
        stream = socket.create_connection(("127.0.0.1", PORT))
        stream.sendall(b"GET /" if number % 2 else head("Content-Length: 1000"))
        streams.append(stream)
    while not is_over.is_set():
        for stream in streams:
            try:
                stream.sendall(b"x")
            except OSError:
                answers["slow"]["cut"] += 1
        time.sleep(0.1)
    for stream in streams:
        stream.close()


def main() -> None:
    names = list(ATTACKS)
    threads = [threading.Thread(target=attack, args=(names[at::4],)) for at in range(4)]
    threads.append(threading.Thread(target=be_slow))
    for each in threads:
        each.start()
    while not all(answers[name] for name in names):
        time.sleep(0.05)
    print("answered", flush=True)
    sys.stdin.read()
    is_over.set()
    for each in threads:
        each.join()
    print(json.dumps(answers))


main()
