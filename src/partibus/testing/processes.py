"""Which processes a process has started, on systems with /proc and on those without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def children_of(pid: int) -> list[int]:
    """The processes that this one has started and that live."""
    if (_PROC / "self").exists():
        found = []
        for directory in _PROC.glob("[0-9]*"):
            try:
                # pid (name) state parent ...; the name may hold spaces and brackets.
                state, parent = (directory / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == pid and state != "Z":
                found.append(int(directory.name))
        return found
    listed = _ps("-A", "-o", "pid=,ppid=").split()
    return [
        int(own)
        for own, parent in zip(listed[::2], listed[1::2], strict=True)
        if int(parent) == pid
    ]


def command_line_of(pid: int) -> str:
    """The command line of a process; empty once it is gone."""
    if (_PROC / "self").exists():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return ""
    return _ps("-p", str(pid), "-o", "command=")


def exists(pid: int) -> bool:
    """Whether there is such a process. One that waits to be reaped counts as gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if (_PROC / str(pid)).exists():
        try:
            return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    return True


def _ps(*arguments: str) -> str:
    return subprocess.run(  # noqa: S603 - a fixed program with our own arguments
        ["/bin/ps", *arguments], capture_output=True, text=True, check=False
    ).stdout
