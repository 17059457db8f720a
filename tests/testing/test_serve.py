"""A real broker in processes of its own, in a test's hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from partibus.testing.processes import children_of, command_line_of, exists
from partibus.testing.serve import BrokerFailed, LiveBroker


def test_processes_are_found_by_node_and_gone_after_a_kill(tmp_path: Path) -> None:
    with LiveBroker(tmp_path, nodes=2) as broker:
        nodes = [broker.node_pid(node) for node in range(2)]
        assert sorted(nodes) == sorted(children_of(broker.pid))
        everybody = [broker.pid, *nodes]
        broker.kill_all()
        assert not any(map(exists, everybody))
        connection_string = broker.connection_string
        broker.start()
        assert broker.connection_string == connection_string
        assert broker.terminate() == 0


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = LiveBroker(tmp_path, options=("--store-dir", "/dev/null/nowhere"))
    with pytest.raises(BrokerFailed, match="/dev/null/nowhere"):
        broker.start()


def test_a_process_knows_its_own_command_line() -> None:
    assert "py" in command_line_of(os.getpid())
    assert exists(os.getpid())
