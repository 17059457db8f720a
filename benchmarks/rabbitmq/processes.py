"""The processes of a running RabbitMQ: a pid namespace of its own tells which they are."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """A running RabbitMQ: its AMQP port on 127.0.0.1 and what stop() needs to end it."""

    port: int
    launcher: int
    namespace: str
    data: str
    env: dict[str, str]

    def pids(self) -> list[int]:
        """Return every process of it (beam, epmd, port helpers) that is alive now."""
        found = (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())
        return sorted(pid for pid in found if namespace_of(pid, "pid") == self.namespace)

    def cpu_seconds(self) -> float:
        """Return user plus system time of all its processes and of the helpers they reaped."""
        return sum(map(_ticks, self.pids())) / os.sysconf("SC_CLK_TCK")

    def alive(self) -> bool:
        """Say whether it still runs, and that its process number is not somebody else's now."""
        return namespace_of(self.launcher, "pid_for_children") == self.namespace


def namespace_of(pid: int, kind: str) -> str:
    """Return the name of a namespace of a process, empty where the process is gone."""
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def first(launcher: int) -> int:
    """Return the first process of the namespace, 0 where it is not there."""
    try:
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0


def end(launcher: int, data: Path) -> None:
    """Kill the namespace's first process, and so all of it, wait for that and remove the data."""
    with contextlib.suppress(ProcessLookupError):
        gone = os.pidfd_open(launcher)
        os.kill(first(launcher) or launcher, signal.SIGKILL)
        select.select([gone], [], [])
        os.close(gone)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(launcher, 0)
    shutil.rmtree(data)
