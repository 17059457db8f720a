"""Keeps nodes alive: starts them, listens for their beats, kills the silent, restarts the dead.

A node that is silent for SILENCE_S is killed and waited for before its successor starts, so a
paused node can never write beside it. One more process may be kept alive beside the nodes, a
companion, which is started when they are ready and which nobody waits for. Nothing of messages,
stores or sockets is known here.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from math import inf

from partibus.runtime.node_process import Command, NodeProcess

log = logging.getLogger(__name__)

SILENCE_S = 5.0
# From its start to its first beat a node has to load its program, perhaps on a busy machine.
FIRST_BEAT_S = 60.0
RESTART_FIRST_S = 0.1
RESTART_LAST_S = 5.0
# A node that lived this long has recovered: its next death is a first one.
RECOVERED_S = 30.0
STOP_S = 10.0
# A companion takes a while to start and to start again, and may be busy for as long.
COMPANION_SILENCE_S = 180.0
COMPANION_RESTART_FIRST_S = 1.0
COMPANION_RESTART_LAST_S = 60.0
# Before the broker was ever ready: so many deaths of one node are not bad luck.
FIRST_STARTS_MAX = 3
# How late a wake-up may be before we conclude that we were paused ourselves.
_PAUSED_S = 2.0


class NodesFailed(Exception):
    """A node died again and again before the broker was ready."""


class Supervisor:
    """Runs nodes until it is told to stop."""

    def __init__(
        self,
        commands: Sequence[Command],
        inherited: tuple[int, ...] = (),
        companion: Command | None = None,
    ) -> None:
        # Every node inherits the reading end and sees its end when this process dies, however.
        self.lifeline, self._life = os.pipe()
        self._inherited = (*inherited, self.lifeline)
        self._nodes = [NodeProcess(index, command) for index, command in enumerate(commands)]
        self._restart_s: dict[int, float] = {}
        self._companion: NodeProcess | None = None
        if companion is not None:
            self._companion = NodeProcess(len(self._nodes), companion)
            self._nodes.append(self._companion)
            self._restart_s[self._companion.index] = inf
        self._deaths = [0] * len(self._nodes)
        self._selector = selectors.DefaultSelector()
        self._signals = -1
        self._stopping = False
        self._was_ready = False

    def run(self, when_ready: Callable[[], None]) -> None:
        """Start the nodes and keep them alive; returns after SIGTERM or SIGINT."""
        restore = self._catch_signals()
        try:
            for node in self._nodes:
                if node is not self._companion:
                    self._start(node)
            while not self._stopping:
                self._turn(when_ready)
        finally:
            self._stop()
            restore()
            self._selector.close()
            os.close(self._life)
            os.close(self.lifeline)

    @property
    def pids(self) -> list[int]:
        """The processes of the nodes that run."""
        return [node.pid for node in self._nodes if node.running]

    def _turn(self, when_ready: Callable[[], None]) -> None:
        due_s = self._next_due_s()
        self._listen(due_s - time.monotonic())
        now_s = time.monotonic()
        if now_s > due_s + _PAUSED_S:
            # We slept (a suspended machine, a stopped process group); so did the nodes, perhaps.
            log.warning("supervisor was paused seconds=%.1f", now_s - due_s)
            for node in self._nodes:
                node.heard_s = now_s
        for node in self._nodes:
            self._look_after(node, now_s)
        waited_for = (node for node in self._nodes if node is not self._companion)
        if not self._was_ready and all(node.ready for node in waited_for):
            self._was_ready = True
            when_ready()
            if self._companion is not None:
                self._restart_s[self._companion.index] = now_s

    def _listen(self, wait_s: float) -> bool:
        """Hear what nodes and signals say, waiting so long; True when asked to stop."""
        asked = False
        for key, _ in self._selector.select(max(wait_s, 0)):
            node = key.data
            if node is None:
                asked = self._read_signals()
                continue
            was_ready = node.ready
            if not node.listen(time.monotonic()):
                # It is dead or about to be: the signal SIGCHLD says when.
                self._selector.unregister(key.fileobj)
            elif node.ready and not was_ready:
                log.info("node ready node=%s pid=%d", self._name(node), node.pid)
        return asked

    def _next_due_s(self) -> float:
        """When something has to be done if nothing is heard until then."""
        silences = [self._silent_s(node) for node in self._nodes if node.running]
        return min([*silences, *self._restart_s.values()])

    def _silent_s(self, node: NodeProcess) -> float:
        if node is self._companion:
            return node.heard_s + COMPANION_SILENCE_S
        has_beaten = node.heard_s > node.started_s
        return node.heard_s + (SILENCE_S if has_beaten else FIRST_BEAT_S)

    def _look_after(self, node: NodeProcess, now_s: float) -> None:
        if not node.running:
            if not self._stopping and now_s >= self._restart_s[node.index]:
                del self._restart_s[node.index]
                self._start(node)
            return
        pid = node.pid
        if now_s >= self._silent_s(node):
            log.error("node silent, killing it node=%s pid=%d", self._name(node), pid)
            node.kill()
            # Killed again at the next silence, should the kernel not let go of it by then.
            node.heard_s = now_s
        code = self._reap(node)
        if code is not None:
            self._plan_restart(node, pid, code, now_s)

    def _reap(self, node: NodeProcess) -> int | None:
        """The exit code of a node that has died, which is then done with."""
        code = node.died()
        if code is not None:
            if node.status_file in self._selector.get_map():
                self._selector.unregister(node.status_file)
            node.forget()
        return code

    def _plan_restart(self, node: NodeProcess, pid: int, code: int, now_s: float) -> None:
        if self._stopping:
            return
        if now_s - node.started_s >= RECOVERED_S:
            self._deaths[node.index] = 0
        first_s, last_s = RESTART_FIRST_S, RESTART_LAST_S
        if node is self._companion:
            first_s, last_s = COMPANION_RESTART_FIRST_S, COMPANION_RESTART_LAST_S
        wait_s = min(first_s * 2 ** self._deaths[node.index], last_s)
        self._deaths[node.index] += 1
        if not self._was_ready and self._deaths[node.index] >= FIRST_STARTS_MAX:
            raise NodesFailed(f"node {node.index} ended with code {code} each time it was started")
        log.error(
            "node died, restarting it node=%s pid=%d code=%d wait_s=%.1f",
            self._name(node), pid, code, wait_s,
        )  # fmt: skip
        self._restart_s[node.index] = now_s + wait_s

    def _start(self, node: NodeProcess) -> None:
        # A companion has no business with clients.
        inherited = (self.lifeline,) if node is self._companion else self._inherited
        node.start(inherited, time.monotonic())
        self._selector.register(node.status_file, selectors.EVENT_READ, node)

    def _name(self, node: NodeProcess) -> str:
        return "companion" if node is self._companion else str(node.index)

    def _stop(self) -> None:
        """End all nodes in order; those that take too long, or when asked twice, at once."""
        self._stopping = True
        deadline_s = time.monotonic() + STOP_S
        killed = False
        for node in self._nodes:
            node.terminate()
        while any(node.running for node in self._nodes):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 and not killed:
                killed = True
                log.warning("nodes did not end in time, killing them pids=%s", self.pids)
                for node in self._nodes:
                    node.kill()
            if self._listen(left_s if left_s > 0 else SILENCE_S):
                deadline_s = 0.0
            for node in self._nodes:
                if node.running:
                    self._reap(node)

    def _catch_signals(self) -> Callable[[], None]:
        """Signals become bytes in a pipe that the loop waits on. Returns what undoes this."""
        self._signals, write_end = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(write_end, False)
        self._selector.register(self._signals, selectors.EVENT_READ, None)
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

        def restore() -> None:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(write_end)
            os.close(self._signals)

        return restore

    def _read_signals(self) -> bool:
        """Take in the signals that came; True when one of them asks us to stop."""
        asked = bool({signal.SIGTERM, signal.SIGINT} & set(os.read(self._signals, 4096)))
        if asked and not self._stopping:
            log.info("stopping nodes=%d", len(self._nodes))
            self._stopping = True
        return asked
