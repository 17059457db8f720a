"""Nodes are kept alive: real processes, killed, paused and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partibus.runtime.supervisor import SILENCE_S

# A node as the supervisor knows it: it says that it is ready, beats, and ends when told to.
NODE = """
import os, signal, sys, threading, time
status, lifeline, behaviour = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
threading.Thread(target=lambda: (os.read(lifeline, 1), os._exit(9)), daemon=True).start()
if behaviour == "failing":
    sys.exit(3)
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.write(status, b"R")
while True:
    os.write(status, b".")
    time.sleep(0.2)
"""

# A supervisor of such nodes, which says what it does in lines that a test can wait for.
SUPERVISOR = """
import logging, sys
from partibus.runtime.supervisor import NodesFailed, Supervisor
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
behaviours = [each for each in sys.argv[2:] if not each.startswith("beside-")]
beside = [each.removeprefix("beside-") for each in sys.argv[2:] if each.startswith("beside-")]
def command(behaviour):
    return lambda status: [
        sys.executable, sys.argv[1], str(status), str(supervisor.lifeline), behaviour
    ]
companion = command(beside[0]) if beside else None
supervisor = Supervisor([command(each) for each in behaviours], companion=companion)
try:
    supervisor.run(lambda: print("all-ready", *supervisor.pids, flush=True))
except NodesFailed as error:
    print("failed:", error, flush=True)
    sys.exit(7)
print("stopped", flush=True)
"""


class Running:
    """A supervisor in a process of its own."""

    def __init__(self, tmp_path: Path, *behaviours: str) -> None:
        node = tmp_path / "node.py"
        node.write_text(NODE)
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", SUPERVISOR, str(node), *behaviours],
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self, wanted: str) -> str:
        """The next line that has these words in it."""
        assert self.process.stdout
        for line in self.process.stdout:
            if wanted in line:
                return line.strip()
        raise AssertionError(f"the supervisor ended without saying {wanted!r}")

    def pids(self) -> list[int]:
        return [int(each) for each in self.line("all-ready").split()[1:]]

    def wait_for_ready_pid(self) -> int:
        return int(self.line("node ready").rpartition("pid=")[2])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


Start = Callable[..., Running]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def start(*behaviours: str) -> Running:
        started.append(Running(tmp_path, *behaviours))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        assert each.process.stdout
        each.process.stdout.close()


def wait_until_gone(pid: int, within_s: float = 5) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_ready_when_all_nodes_are_and_ends_them_when_told(run: Start) -> None:
    supervisor = run("good", "good", "good")
    pids = supervisor.pids()
    assert len(set(pids)) == 3
    assert all(map(is_alive, pids))
    assert supervisor.stop() == 0
    assert not any(map(is_alive, pids))


def test_a_node_that_dies_is_started_again_and_the_others_stay(run: Start) -> None:
    supervisor = run("good", "good")
    first, second = supervisor.pids()
    os.kill(first, signal.SIGKILL)
    assert "code=-9" in supervisor.line("node died")
    again = supervisor.wait_for_ready_pid()
    assert again not in (first, second)
    assert is_alive(second)
    assert supervisor.stop() == 0


def test_each_death_in_a_row_waits_twice_as_long(run: Start) -> None:
    supervisor = run("good")
    (pid,) = supervisor.pids()
    waits = []
    for _ in range(4):
        os.kill(pid, signal.SIGKILL)
        waits.append(float(supervisor.line("node died").rpartition("wait_s=")[2]))
        pid = supervisor.wait_for_ready_pid()
    assert waits == [0.1, 0.2, 0.4, 0.8]


def test_a_paused_node_is_killed_before_its_successor_starts(run: Start) -> None:
    supervisor = run("good")
    (pid,) = supervisor.pids()
    os.kill(pid, signal.SIGSTOP)
    paused_s = time.monotonic()
    supervisor.line("node silent")
    assert time.monotonic() - paused_s > SILENCE_S - 1.5
    assert "code=-9" in supervisor.line("node died")
    assert not is_alive(pid)
    assert supervisor.wait_for_ready_pid() != pid


def test_nodes_die_with_a_supervisor_that_was_killed(run: Start) -> None:
    supervisor = run("good", "good")
    pids = supervisor.pids()
    supervisor.process.kill()
    for pid in pids:
        wait_until_gone(pid)


def test_a_second_request_to_stop_does_not_wait_for_stubborn_nodes(run: Start) -> None:
    supervisor = run("stubborn", "good")
    pids = supervisor.pids()
    supervisor.process.send_signal(signal.SIGINT)
    supervisor.line("stopping")
    wait_until_gone(pids[1])
    assert is_alive(pids[0])
    supervisor.process.send_signal(signal.SIGINT)
    assert supervisor.process.wait(5) == 0
    assert not is_alive(pids[0])


def test_a_node_that_never_comes_up_is_given_up_with_its_exit_code(run: Start) -> None:
    supervisor = run("failing", "good")
    assert "node 0 ended with code 3 each time" in supervisor.line("failed:")
    assert supervisor.process.wait(5) == 7


def test_a_supervisor_that_was_paused_does_not_blame_its_nodes(run: Start) -> None:
    supervisor = run("good")
    (pid,) = supervisor.pids()
    supervisor.process.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(SILENCE_S + 2.5)  # the span itself is what is tested
    supervisor.process.send_signal(signal.SIGCONT)
    supervisor.line("supervisor was paused")
    os.kill(pid, signal.SIGCONT)
    assert supervisor.stop() == 0
    assert supervisor.process.stdout
    assert "silent" not in supervisor.process.stdout.read()


def test_idling_costs_next_to_nothing(run: Start) -> None:
    supervisor = run("good", "good")
    supervisor.pids()

    def cpu_s() -> float:
        fields = Path(f"/proc/{supervisor.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before_s = cpu_s()
    time.sleep(2)  # the span itself is what is tested
    assert cpu_s() - before_s <= 0.1


def test_S5_a_companion_is_not_waited_for_and_ends_with_the_nodes(run: Start) -> None:
    supervisor = run("good", "beside-good")
    (node,) = supervisor.pids()
    first = supervisor.wait_for_ready_pid()
    os.kill(first, signal.SIGKILL)
    assert "node=companion" in supervisor.line("node died")
    second = supervisor.wait_for_ready_pid()
    assert is_alive(node)
    assert supervisor.stop() == 0
    assert not any(map(is_alive, (node, second)))


def test_S5_a_companion_that_cannot_start_waits_longer_and_longer(run: Start) -> None:
    supervisor = run("good", "beside-failing")
    (node,) = supervisor.pids()
    waits = [float(supervisor.line("node died").rpartition("wait_s=")[2]) for _ in range(2)]
    assert waits == [1.0, 2.0]
    assert is_alive(node)
    assert supervisor.stop() == 0
