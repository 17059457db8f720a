"""Bulk readers and staged writes, told to an operator, who removes those that are no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from partibus.client.administration import Administration
from partibus.pipeline.door import Door, DoorRefused
from partibus.pipeline.options import Place
from partibus.testing.serve import LiveBroker

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


def door(broker: LiveBroker, entity: str) -> Door:
    return Door(Place(broker.connection_string, entity))


def metrics(broker: LiveBroker, name: str, **labels: str) -> list[float]:
    with Administration.from_connection_string(broker.connection_string) as admin:
        lines = admin.metrics().splitlines()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith((f"partibus_{name}{{", f"partibus_{name} "))
        and all(each in line for each in wanted)
    ]


def test_S2_a_named_reader_shows_what_is_kept_for_it_until_it_is_removed(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("read", enable_partitioning=True)
    with door(broker, queue) as opened:
        opened.move("spark", dict.fromkeys(range(1, 17), 0))
    partibus("send", queue, "--lines", "--key", "k", stdin="a\nb\nc\n")
    partibus("receive", queue, "--count", "2")

    (row,) = json.loads(partibus("reader", "list", queue, "--output", "json").out)
    assert (row["name"], row["mode"], row["state"], row["lag"]) == ("spark", "browse", "ok", 3)
    assert row["keptBytes"] > 0
    assert row in json.loads(partibus("reader", "list", "--output", "json").out)
    table = partibus("reader", "show", queue, "spark", "--output", "json").out
    assert sorted(each["lag"] for each in json.loads(table)) == [0] * 15 + [3]
    which = {"entity": queue, "reader": "spark", "mode": "browse"}
    assert sum(metrics(broker, "reader_lag", **which)) == 3
    assert sum(metrics(broker, "reader_kept_bytes", **which)) == row["keptBytes"]
    assert metrics(broker, "reader_lost", **which) == [0] * 16
    assert metrics(broker, "reader_kept_bytes_max")[0] > row["keptBytes"]

    removed = partibus("reader", "remove", queue, "spark", "--yes")
    assert (removed.code, "not kept any more" in removed.err) == (0, True)
    assert json.loads(partibus("reader", "list", queue, "--output", "json").out) == []
    assert metrics(broker, "reader_lag", **which) == []


def test_S2_what_is_reserved_for_an_abandoned_reader_comes_back_when_it_is_removed(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("consumed", enable_partitioning=True)
    partibus("send", queue, "--lines", "--key", "k", stdin="a\nb\nc\n")
    with door(broker, queue) as opened:
        epoch = str(opened.ask("POST", "/consumers/spark")["epoch"])
        opened.ask("PUT", "/consumers/spark", {"epoch": epoch, "most": "2"}, b"{}")

    (row,) = json.loads(partibus("reader", "list", queue, "--output", "json").out)
    assert (row["mode"], row["reserved"], row["lag"], row["epoch"]) == ("consume", 2, 3, 1)
    which = {"entity": queue, "reader": "spark"}
    assert sum(metrics(broker, "reader_reserved_messages", **which)) == 2
    assert "spark" in partibus("reader", "list").out

    # Of the same name, but another reader.
    with door(broker, queue) as opened:
        opened.move("spark", {1: 0})
    unclear = partibus("reader", "remove", queue, "spark", "--yes")
    assert (unclear.code, "--mode consume" in unclear.err) == (2, True)
    of_this_one = ("--mode", "consume", "--yes", "--output", "json")
    removed = json.loads(partibus("reader", "remove", queue, "spark", *of_this_one).out)
    assert removed == {"removed": "spark", "givenBack": 2}
    back = partibus("receive", queue, "--count", "3").out.splitlines()
    assert [line.split()[-1] for line in back] == ["a", "b", "c"]
    with door(broker, queue) as opened, pytest.raises(DoorRefused):
        # The driver that was forgotten finds that it is.
        opened.ask("PUT", "/consumers/spark", {"epoch": epoch, "most": "2"}, b'{"1": 2}')


def test_S2_readers_of_dead_letters_are_told_apart_from_those_of_the_queue(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("dead")
    for entity in (queue, f"{queue}/$deadletterqueue"):
        with door(broker, entity) as opened:
            opened.move("spark", {0: 0})
    rows = json.loads(partibus("reader", "list", queue, "--output", "json").out)
    assert [each["entity"] for each in rows] == [queue, f"{queue}/$deadletterqueue"]
    assert partibus("reader", "remove", f"{queue}/$deadletterqueue", "spark", "--yes").code == 0
    assert partibus("reader", "remove", queue, "spark", "--yes").code == 0
    missing = partibus("reader", "remove", queue, "spark", "--yes")
    assert (missing.code, "has no reader 'spark'" in missing.err) == (2, True)


def test_A4_readers_of_all_entities_are_told_to_who_manages(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("private")
    listener = broker.create_access_rule("listener", "Listen", queue=queue)
    assert partibus("reader", "list", queue, connection=listener).code == 0
    assert partibus("reader", "list", connection=listener).code == 8
    assert partibus("staged", connection=listener).code == 8


def test_S1_what_is_staged_shows_until_it_is_published(
    partibus: Callable[..., Any], broker: LiveBroker
) -> None:
    queue = broker.create_queue("written")
    rows = pa.RecordBatch.from_pydict({"body": ["one", "two"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    with door(broker, queue) as opened:
        staged = opened.ask("PUT", "/writers/job/7/a", None, sink.getvalue().to_pybytes())
        (row,) = json.loads(partibus("staged", "--output", "json").out)
        assert (row["entity"], row["writer"], row["batch"]) == (queue, "job", 7)
        assert (row["attempts"], row["decided"]) == (1, False)
        assert row["bytes"] > 0
        assert metrics(broker, "staged_attempts") == [1]
        assert metrics(broker, "staged_bytes") == [row["bytes"]]
        opened.ask("POST", "/writers/job/7", None, json.dumps({"a": staged["fragments"]}).encode())
    assert json.loads(partibus("staged", "--output", "json").out) == []
    assert metrics(broker, "staged_batches") == [0]
