"""What processes cost, read from /proc: CPU time and memory of a process and all it started."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_KIB_PER_MB = 1024


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def tree(root: int) -> list[int]:
    """The process and all its living descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found = [root] if root in parents else []
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes and of the children they have reaped."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in pids) / _TICK


def rss_mb(pid: int) -> float:
    """Resident memory of one process; 0 where it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    _, found, rest = status.partition("VmRSS:")
    return int(rest.split()[0]) / _KIB_PER_MB if found else 0.0


def machine_busy_seconds() -> float:
    """CPU time that anybody on this machine has used, all cores together."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / _TICK
