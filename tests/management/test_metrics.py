"""Numbers for operators: of all nodes, exact, and only for who may see them."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from partibus.client import Client, Message
from partibus.client.connection_string import read_connection_string
from partibus.management.metrics import write
from partibus.runtime.measuring import FragmentMeasure, NodeMeasure, StoreMeasure
from partibus.testing.http_world import World, in_world
from partibus.testing.serve import LiveBroker


def metrics_of(broker: LiveBroker) -> dict[str, float]:
    where = read_connection_string(broker.connection_string)
    assert where.credentials is not None
    # A token that ends after the test does.
    token = where.credentials.token("http://test/", 4_000_000_000_000).text
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.port}/metrics", headers={"Authorization": token}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        lines = response.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def total(found: dict[str, float], name: str, **labels: str) -> float:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for key, value in found.items()
        if re.match(rf"partibus_{name}\{{", key) and all(each in key for each in wanted)
    )


def test_the_numbers_of_all_nodes_are_exact_and_survive_a_kill(tmp_path: Path) -> None:
    with LiveBroker(tmp_path, nodes=2) as broker:
        broker.create_queue("q", enable_partitioning=True)
        with Client.from_connection_string(broker.connection_string) as client:
            with client.sender("q") as sender:
                sender.send([Message(str(number)) for number in range(64)])
            with client.receiver("q") as receiver:
                left = 24
                while left:
                    messages = receiver.receive(left, timeout=10)
                    receiver.complete(messages)
                    left -= len(messages)
            found = metrics_of(broker)
            assert total(found, "connections", door="amqp") >= 1
        assert total(found, "node_up") == 2
        assert total(found, "store_up") == 16
        assert total(found, "store_commits_total") > 0
        assert total(found, "hop_frames_total") > 0
        for now in (found, None):
            if now is None:
                broker.kill_all()
                broker.start()
                now = metrics_of(broker)
            assert total(now, "messages", entity="q", state="active") == 40
            assert total(now, "messages_accepted_total", entity="q") == 64
            assert total(now, "messages_completed_total", entity="q") == 24


def test_A4_metrics_need_the_right_to_manage(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        assert (await world.ask("GET", "/metrics"))[0] == 401
        status, headers, _ = await world.ask("GET", "/metrics", Authorization=world.token())
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")

    in_world(tmp_path, use)


def test_a_silent_node_is_down_and_a_name_cannot_break_a_line() -> None:
    fragment = FragmentMeasure('a"b\\c\nd', 3, "active", 9, {"active": 1}, {"accepted": 2})
    node = NodeMeasure([StoreMeasure(0, True, 1, 1500, 0, 0)], [fragment], 0, {}, {})
    text = write({0: node, 1: None})
    assert 'partibus_node_up{node="1"} 0' in text
    assert 'partibus_store_commit_seconds_total{node="0",store="0"} 1.5' in text
    assert 'entity="a\\"b\\\\c\\nd",partition="3",subqueue="active",state="active"} 1' in text
