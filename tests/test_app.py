"""A node put together: both doors are open, and it ends in order."""

from __future__ import annotations

from pathlib import Path

from partibus.client import Client, Message
from partibus.testing.serve import LiveBroker


def test_a_node_serves_both_doors_until_it_is_told_to_end(tmp_path: Path) -> None:
    with LiveBroker(tmp_path, nodes=1) as broker:
        broker.create_queue("q")
        with Client.from_connection_string(broker.connection_string) as client:
            with client.sender("q") as sender:
                sender.send(Message("kept"))
            with client.receiver("q") as receiver:
                (message,) = receiver.receive(timeout=10)
                assert message.body == b"kept"
        assert broker.health()[0] == 200
        assert broker.terminate() == 0
