"""RabbitMQ 4.x with quorum queues, the durable peer that the benchmarks compare partibus with.

The command line, and the functions that other benchmarks call; README.md says why and how.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.rabbitmq.broker import current, declare, rabbitmqctl, running, start, stop
from benchmarks.rabbitmq.debian import PeerError, default_root, install, version
from benchmarks.rabbitmq.processes import Peer

__all__ = [
    "Peer",
    "PeerError",
    "current",
    "declare",
    "default_root",
    "install",
    "rabbitmqctl",
    "running",
    "start",
    "stop",
    "version",
]
NOT_RUNNING = 3
UNAVAILABLE = 69


def _show(peer: Peer | None) -> int:
    about: dict[str, object] = {"version": version(), "running": bool(peer)}
    if peer:
        about |= {"port": peer.port, "pids": peer.pids(), "cpu_seconds": peer.cpu_seconds()}
    print(json.dumps(about))
    return 0 if peer else NOT_RUNNING


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["install", "start", "stop", "status"])
    parser.add_argument("--port", type=int, default=0, help="AMQP port (default: a free one)")
    parser.add_argument("--queue", action="append", default=[], help="quorum queue to declare")
    args = parser.parse_args()
    try:
        if args.action == "install":
            print(install())
        elif args.action == "start":
            return _show(start(args.queue, args.port))
        elif args.action == "stop":
            stop()
        else:
            return _show(current())
    except PeerError as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
