"""Start and stop the RabbitMQ that the benchmarks compare partibus with.

It runs in private mount and pid namespaces: they tell which processes are its own, killing the
first process of the pid namespace ends all of them, and no mount outlives them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.rabbitmq.debian import (
    DATA,
    PeerError,
    default_root,
    install,
    need_root,
    run,
    version,
)
from benchmarks.rabbitmq.processes import Peer, end, first, namespace_of

HERE = Path(__file__).resolve().parent
READY_SECONDS = 120
CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = ANONYMOUS
anonymous_login_user = guest
anonymous_login_pass = guest
log.file = false
log.console = true
log.console.level = warning
"""
RUN = """
mount --bind "$2" "$1$3"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
exec chroot "$1" /usr/lib/rabbitmq/bin/rabbitmq-server
"""


def _state(root: Path) -> Path:
    return root.with_name(root.name + ".running.json")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _environment(epmd: int, dist: int) -> dict[str, str]:
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": DATA,
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "partibus-bench@localhost",
        "RABBITMQ_DIST_PORT": str(dist),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": f"{DATA}/rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{DATA}/enabled_plugins",
        "RABBITMQ_MNESIA_BASE": f"{DATA}/mnesia",
        "RABBITMQ_LOG_BASE": f"{DATA}/log",
        "ERL_CRASH_DUMP": f"{DATA}/erl_crash.dump",
        "RABBITMQ_PID_FILE": f"{DATA}/pid",
    }


def _launch(root: Path, data: Path, env: dict[str, str]) -> int:
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    argv = [*unshare, "sh", "-ec", RUN, "sh", str(root), str(data), DATA]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(data / "console.log"), os.O_WRONLY | os.O_CREAT, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(argv[0], argv, env, file_actions=actions, setsid=True)


def rabbitmqctl(peer: Peer, *args: str) -> str:
    """Run rabbitmqctl beside the running broker and return what it prints."""
    target = str(first(peer.launcher))
    enter = ["nsenter", "--target", target, "--mount", "--pid", "--root", "--wd"]
    return run([*enter, "/usr/lib/rabbitmq/bin/rabbitmqctl", "-q", *args], peer.env, READY_SECONDS)


def declare(peer: Peer, queues: Sequence[str]) -> None:
    """Declare durable quorum queues; their AMQP 1.0 address is /queues/NAME."""
    common = {"vhost": "/", "durable": True, "auto_delete": False}
    kind = {"x-queue-type": "quorum"}
    wanted = [{"name": name, **common, "arguments": kind} for name in queues]
    Path(peer.data, "queues.json").write_text(json.dumps({"queues": wanted}))
    rabbitmqctl(peer, "import_definitions", f"{DATA}/queues.json")


def _await_pid_file(launcher: int, data: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not (data / "pid").exists():
        if not first(launcher) and os.waitpid(launcher, os.WNOHANG)[0]:
            raise PeerError("RabbitMQ ended while it started")
        if time.monotonic() > deadline:
            raise PeerError(f"RabbitMQ did not start within {READY_SECONDS} s")
        time.sleep(0.02)


@contextlib.contextmanager
def _console_in_errors(data: Path) -> Iterator[None]:
    try:
        yield
    except PeerError as error:
        console = (data / "console.log").read_text(errors="replace")
        raise PeerError(f"{error}\n{console[-3000:]}") from error


def start(
    queues: Sequence[str] = (), port: int = 0, root: Path | None = None, disk: Path = HERE
) -> Peer:
    """Start RabbitMQ on fresh data in a directory on disk; return it serving the queues."""
    need_root()
    root = root or default_root()
    if not version(root):
        raise PeerError("RabbitMQ is not installed: run install first")
    if current(root):
        raise PeerError("RabbitMQ runs already: run stop first")
    stop(root)
    free, epmd, dist = _free_ports(3)
    port = port or free
    data = Path(tempfile.mkdtemp(prefix=".data-", dir=disk))
    (data / "rabbitmq.conf").write_text(CONFIG.format(port=port))
    (data / "enabled_plugins").write_text("[].\n")
    env = _environment(epmd, dist)
    launcher = _launch(root, data, env)
    with contextlib.ExitStack() as undo:
        undo.callback(end, launcher, data)
        undo.enter_context(_console_in_errors(data))
        _await_pid_file(launcher, data)
        peer = Peer(port, launcher, namespace_of(launcher, "pid_for_children"), str(data), env)
        _state(root).write_text(json.dumps(asdict(peer)))
        undo.callback(_state(root).unlink)
        rabbitmqctl(peer, "wait", f"{DATA}/pid", "--timeout", str(READY_SECONDS))
        declare(peer, queues)
        undo.pop_all()
    return peer


def current(root: Path | None = None) -> Peer | None:
    """Return the RabbitMQ that runs from this chroot, whoever started it."""
    state = _state(root or default_root())
    peer = Peer(**json.loads(state.read_text())) if state.exists() else None
    return peer if peer and peer.alive() else None


def stop(root: Path | None = None) -> None:
    """End the RabbitMQ of this chroot and remove its data; do nothing where none runs."""
    state = _state(root or default_root())
    if not state.exists():
        return
    peer = Peer(**json.loads(state.read_text()))
    if peer.alive():
        end(peer.launcher, Path(peer.data))
    shutil.rmtree(peer.data, ignore_errors=True)
    state.unlink()


@contextlib.contextmanager
def running(queues: Sequence[str], port: int = 0) -> Iterator[Peer]:
    """Have RabbitMQ run with these quorum queues for the time of a with block."""
    install()
    peer = start(queues, port)
    try:
        yield peer
    finally:
        stop()
