"""What the codec and the engine cost per message, in memory: plain Python and compiled.

    python benchmarks/codec.py             the modules as they are imported
    python benchmarks/codec.py --compile   plain, then compiled by mypyc in a temporary directory

Microseconds of CPU per message, the best of several rounds. The message is a realistic one:
header, partition key, eleven properties, two application properties and one data section.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
COMPILED_MODULES = {
    "wire": [
        "codec", "frames", "message_build", "message_patch", "message_scan", "octets", "transfer",
    ],
    "engine": [
        "channels", "connection", "delivery", "endpoint", "handshake", "link", "output", "session",
        "states",
    ],
}  # fmt: skip
MESSAGES = 1000
ROUNDS = 15


def sample_message(size: int) -> bytes:
    from partibus.wire.codec import encode
    from partibus.wire.values import Described, Symbol, Timestamp, UInt, ULong

    when = Timestamp(1_700_000_000_000)
    sections: list[tuple[int, object]] = [
        (0x70, [True, None, UInt(60_000), None, UInt(0)]),
        (0x72, {Symbol("x-opt-partition-key"): "customer-4711"}),
        (
            0x73,
            [
                "0f8fad5b-d9cb-469f-a165-70867728950e",
                None,
                "orders",
                "order",
                None,
                "correlation",
                Symbol("application/json"),
                None,
                when,
                when,
                "customer-4711",
            ],
        ),
        (0x74, {"kind": "created", "version": 7}),
        (0x75, bytes(size)),
    ]
    return b"".join(encode(Described(ULong(code), value)) for code, value in sections)


def best(work: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> float:
    """Microseconds per message of the fastest round."""
    times = []
    for _ in range(ROUNDS):
        prepare()
        start = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - start)
    return min(times) / MESSAGES / 1000


class Pair:
    """A client and a server engine joined in memory, with a link in each direction."""

    def __init__(self) -> None:
        from partibus.engine.connection import Connection
        from partibus.engine.limits import Limits
        from partibus.wire.performatives import Attach, Open, Source, Target

        limits = Limits(unsettled_max=1 << 30)
        self.server = Connection.server(Open("server"), limits=limits, now_ms=0, allow_no_sasl=True)
        self.client = Connection.client(Open("client"), limits=limits, now_ms=0, mechanism=None)
        session = self.client.begin()
        self.up = self.client.attach_sender(
            session, Attach("up", source=Source("a"), target=Target("q"))
        )
        self.down = self.client.attach_receiver(
            session, Attach("down", source=Source("q"), target=Target("a"))
        )
        events = self.server.receive_data(self.client.data_to_send(), 0)
        self.server_up, self.server_down = [e.link for e in events if hasattr(e, "attach")]
        self.server_up.accept()
        self.server_down.accept()
        self.server_up.grant(1 << 30)
        self.down.grant(1 << 30)
        self.join()

    def join(self) -> None:
        for _ in range(2):
            self.client.receive_data(self.server.data_to_send(), 0)
            self.server.receive_data(self.client.data_to_send(), 0)


def receive(size: int) -> float:
    """Cut frames, read transfers, find the sections, answer with one disposition range."""
    from partibus.wire.performatives import ACCEPTED
    from partibus.wire.sections import scan

    pair = Pair()
    message = sample_message(size)
    data = [b""]

    def prepare() -> None:
        pair.join()
        pair.client.data_to_send()
        pair.up.send_many([(b"abcd", message)] * MESSAGES)
        data[0] = pair.client.data_to_send()

    def work() -> None:
        for event in pair.server.receive_data(data[0], 0):
            deliveries = event.deliveries
            for delivery in deliveries:
                scan(delivery.payload)
            event.link.settle([delivery.delivery_id for delivery in deliveries], ACCEPTED)

    return best(work, prepare)


def deliver(size: int) -> float:
    """Put messages together, write them as transfers, take the bytes."""
    from partibus.wire.sections import delivery, scan

    pair = Pair()
    found = scan(sample_message(size))
    bare, kept, count = found.bare, found.kept_annotations, found.kept_count
    token = bytes(range(16))

    def prepare() -> None:
        pair.join()
        pair.server_down.session.unsettled.clear()

    def work() -> None:
        messages = [
            (
                token,
                delivery(
                    bare,
                    kept,
                    count,
                    delivery_count=0,
                    ttl_ms=60_000,
                    sequence_number=number,
                    enqueued_time_ms=1_700_000_000_000,
                    enqueue_sequence_number=number,
                    locked_until_ms=1_700_000_060_000,
                    lock_token=token,
                ),
            )
            for number in range(MESSAGES)
        ]
        pair.server_down.send_many(messages)
        pair.server.data_to_send()

    return best(work, prepare)


def settle(ranged: bool) -> float:
    """Take dispositions of the receiver, and answer them."""
    from partibus.wire.performatives import ACCEPTED

    pair = Pair()
    data = [b""]

    def prepare() -> None:
        pair.join()
        first = pair.server_down.send_many([(bytes(16), b"")] * MESSAGES)
        pair.join()
        ids = list(range(first, first + MESSAGES))
        for chunk in [ids] if ranged else [[i] for i in ids]:
            pair.down.settle(chunk, ACCEPTED, settled=False)
        data[0] = pair.client.data_to_send()

    def work() -> None:
        for event in pair.server.receive_data(data[0], 0):
            event.link.settle([delivery_id for delivery_id, _ in event.deliveries], event.state)

    return best(work, prepare)


def measure() -> None:
    import partibus.wire.transfer as transfer

    kind = "plain" if str(transfer.__file__).endswith(".py") else "compiled"
    print(f"{kind:9} us/message            100 B     1 KB")
    print(f"{kind:9} receive + sections   {receive(100):6.2f}   {receive(1024):6.2f}")
    print(f"{kind:9} deliver              {deliver(100):6.2f}   {deliver(1024):6.2f}")
    print(f"{kind:9} settle one by one    {settle(False):6.2f}")
    print(f"{kind:9} settle as a range    {settle(True):6.2f}")


def measure_compiled() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        shutil.copytree(SOURCE, root, dirs_exist_ok=True)
        modules = [
            f"partibus/{room}/{name}.py"
            for room, names in COMPILED_MODULES.items()
            for name in names
        ]
        script = f"""
            from mypyc.build import mypycify
            from setuptools import setup
            setup(name="hot", packages=[], ext_modules=mypycify({modules!r}, opt_level="3"))
        """
        (root / "setup.py").write_text(textwrap.dedent(script))
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
        environment = {**os.environ, "PYTHONPATH": directory}
        subprocess.run([sys.executable, __file__], env=environment, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="measure the compiled form too")
    arguments = parser.parse_args()
    if not os.environ.get("PYTHONPATH"):
        sys.path.insert(0, str(SOURCE))
    measure()
    if arguments.compile:
        measure_compiled()
