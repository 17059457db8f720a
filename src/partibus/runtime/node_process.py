"""One node as its supervisor sees it: a process that says it is ready, and then that it lives.

The node writes READY once and ALIVE every second into a pipe; the end of the pipe is its death.
When to kill and when to start again is the supervisor's decision.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

READY = b"R"
ALIVE = b"."
BEAT_S = 1.0
# More than a node can have said since it was last listened to.
_READ_BYTES = 4096

# The command that starts a node, given the file in which it says that it lives.
Command = Callable[[int], list[str]]


class NodeProcess:
    """A node's process, from one start to its death, and over again."""

    __slots__ = ("_command", "_process", "_status", "heard_s", "index", "ready", "started_s")

    def __init__(self, index: int, command: Command) -> None:
        self.index = index
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._status = -1
        self.ready = False
        self.started_s = 0.0
        self.heard_s = 0.0

    def start(self, inherited: tuple[int, ...], now_s: float) -> None:
        """Start the process; it inherits these files."""
        assert self._process is None
        self._status, theirs = os.pipe()
        os.set_blocking(self._status, False)
        self.ready = False
        self.started_s = self.heard_s = now_s
        try:
            # The command is our own: this Python, this program.
            self._process = subprocess.Popen(  # noqa: S603
                self._command(theirs), pass_fds=(theirs, *inherited), stdin=subprocess.DEVNULL
            )
        finally:
            os.close(theirs)

    @property
    def running(self) -> bool:
        """Whether there is a process, alive or not yet waited for."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    @property
    def status_file(self) -> int:
        """What to wait on for news of the node."""
        return self._status

    def listen(self, now_s: float) -> bool:
        """Take in what the node said; False once it can say nothing more."""
        try:
            said = os.read(self._status, _READ_BYTES)
        except BlockingIOError:
            return True
        if said:
            self.heard_s = now_s
            self.ready = self.ready or READY in said
        return bool(said)

    def died(self) -> int | None:
        """The exit code (minus the signal's number) once the process is dead, else None."""
        assert self._process is not None
        return self._process.poll()

    def forget(self) -> None:
        """The dead process is done with; another may be started."""
        os.close(self._status)
        self._status = -1
        self._process = None
        self.ready = False

    def terminate(self) -> None:
        """Ask it to end in order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, paused or not."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Popen does not signal a process that it has already waited for.
        if self._process is not None:
            self._process.send_signal(number)
