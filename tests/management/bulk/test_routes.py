"""The bulk doors over HTTP, with the pipeline's own client and without Spark."""

from __future__ import annotations

import itertools
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.pipeline.door import Door, DoorRefused, Range
from partibus.pipeline.options import Place
from partibus.testing.namespace import Namespace
from partibus.testing.processes import children_of, command_line_of
from partibus.wire.columns import READ_COLUMNS

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """One for all tests: its side process takes a second to start."""
    with Namespace(tmp_path_factory.mktemp("namespace")) as running:
        yield running


_numbers = itertools.count()


@pytest.fixture
def queue(namespace: Namespace) -> str:
    """A conventional queue of the test's own."""
    return namespace.create_queue(f"q{next(_numbers)}")


@contextmanager
def door(namespace: Namespace, entity: str, connection_string: str = "") -> Iterator[Door]:
    endpoint = f"http://127.0.0.1:{namespace.http_port}"
    place = Place(connection_string or namespace.connection_string, entity, endpoint)
    with Door(place) as opened:
        yield opened


def positions(namespace: Namespace, entity: str, connection_string: str = "") -> dict[str, Any]:
    with door(namespace, entity, connection_string) as opened:
        return opened.positions()


def messages(namespace: Namespace, entity: str, asked: Range, columns: list[str]) -> Any:
    with door(namespace, entity) as opened:
        return pa.Table.from_batches(opened.messages(asked, columns))


def send(namespace: Namespace, queue: str, *messages: ServiceBusMessage) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(list(messages))


def test_S1_one_call_tells_where_all_fragments_stand(namespace: Namespace) -> None:
    queue = namespace.create_queue("partitioned", enable_partitioning=True)
    send(namespace, queue, *(ServiceBusMessage(f"{n}", partition_key="k") for n in range(3)))

    told = positions(namespace, queue)

    assert [each["fragment"] for each in told["fragments"]] == list(range(1, 17))
    assert sorted(each["last"] for each in told["fragments"]) == [0] * 15 + [3]
    assert sum(each.get("active", 0) for each in told["fragments"]) == 3


def test_S1_a_range_comes_with_the_columns_that_were_asked_for(
    namespace: Namespace, queue: str
) -> None:
    send(namespace, queue, *(ServiceBusMessage(f"text {n}") for n in range(5)))

    table = messages(namespace, queue, Range(0, 1, 3), ["body", "sequenceNumber"])

    assert table.column_names == ["body", "sequenceNumber"]
    assert table["body"].to_pylist() == [b"text 1", b"text 2"]
    assert table["sequenceNumber"].to_pylist() == [2, 3]


def test_S1_every_column_has_the_type_that_spark_expects(namespace: Namespace, queue: str) -> None:
    send(namespace, queue, ServiceBusMessage("x", application_properties={"a": 1}))
    batch = messages(namespace, queue, Range(0, 0, 9), list(READ_COLUMNS))
    kinds = {
        "string": pa.string(), "int": pa.int32(), "long": pa.int64(), "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"), "map": pa.map_(pa.string(), pa.string()),
    }  # fmt: skip
    assert {field.name: field.type for field in batch.schema} == {
        name: kinds[kind] for name, kind in READ_COLUMNS.items()
    }


def test_S1_the_process_that_reads_is_replaced_when_it_is_gone(namespace: Namespace) -> None:

    queue = namespace.create_queue("q")
    positions(namespace, queue)
    (side,) = [each for each in children_of(os.getpid()) if "bulk.worker" in command_line_of(each)]
    os.kill(side, signal.SIGKILL)
    os.waitpid(side, os.WNOHANG)
    assert positions(namespace, queue)["fragments"][0]["last"] == 0


@pytest.mark.parametrize(
    ("entity", "asked", "columns", "text"),
    [
        ("nothing", Range(0, 0, 1), ["body"], "could not be found"),
        ("", Range(7, 0, 1), ["body"], "no fragment 7"),
        ("", Range(0, 0, 1), ["colour"], "no column 'colour'"),
    ],
)
def test_S1_what_is_not_there_is_said(
    namespace: Namespace, queue: str, entity: str, asked: Range, columns: list[str], text: str
) -> None:
    with pytest.raises(DoorRefused, match=text):
        messages(namespace, entity or queue, asked, columns)


def test_A4_the_right_to_listen_is_needed(namespace: Namespace, queue: str) -> None:
    sender = namespace.create_access_rule("sender", "Send", queue=queue)
    with pytest.raises(DoorRefused, match="'Listen' claim"):
        positions(namespace, queue, sender)
    url = f"http://127.0.0.1:{namespace.http_port}/$partibus/bulk/{queue}/fragments"
    with pytest.raises(urllib.error.HTTPError, match="401") as caught:
        urllib.request.urlopen(url)
    caught.value.close()


def test_S1_messages_in_memory_are_not_read_in_bulk(servicebus_namespace: Namespace) -> None:
    servicebus_namespace.create_queue("q")
    with pytest.raises(DoorRefused, match="in memory"):
        positions(servicebus_namespace, "q")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<Error><Detail>No service is hosted at the specified address.</Detail></Error>"),
        (404, b"<html>nginx</html>"),
        (405, b""),
        (501, b"Unsupported method"),
    ],
)
def test_S1_a_server_without_bulk_doors_is_named(status: int, body: bytes) -> None:
    import http.server
    import threading

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = Place(
            "Endpoint=sb://h;UseDevelopmentEmulator=true", "q",
            f"http://127.0.0.1:{server.server_port}",
        )  # fmt: skip
        with pytest.raises(DoorRefused, match="has no bulk doors"), Door(place) as opened:
            opened.positions()
        server.shutdown()


def test_S2_what_is_completed_is_kept_for_a_named_reader_only(namespace: Namespace) -> None:
    queue = namespace.create_queue("kept", enable_partitioning=True)
    with door(namespace, queue) as opened:
        opened.move("spark", dict.fromkeys(range(1, 17), 0))
        send(namespace, queue, *(ServiceBusMessage(f"{n}", partition_key="k") for n in range(4)))
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,
            client.get_queue_receiver(queue) as receiver,
        ):
            for message in receiver.receive_messages(2, max_wait_time=5):
                receiver.complete_message(message)
        told = opened.positions(reader="spark")["fragments"]
        (fragment,) = [each["fragment"] for each in told if each["last"]]
        everything = Range(fragment, 0, 10)

        assert {each["reader"] for each in told} == {0}
        listed = opened.positions(reader="*")["fragments"]
        assert all(each["readers"] == {"spark": 0} for each in listed)
        assert sum(each["keptBytes"] for each in listed) > 0
        assert [each["first"] for each in told if each["last"]] == [1]
        mine = pa.Table.from_batches(opened.messages(everything, ["body"], "spark"))
        assert mine["body"].to_pylist() == [b"0", b"1", b"2", b"3"]
        others = pa.Table.from_batches(opened.messages(everything, ["body"]))
        assert others["body"].to_pylist() == [b"2", b"3"]

        opened.move("spark", {fragment: 1})
        # What was kept goes behind the answer, when the disk has time.
        for _ in range(500):
            mine = pa.Table.from_batches(opened.messages(everything, ["body"], "spark"))
            if len(mine) == 3:
                break
        assert mine["body"].to_pylist() == [b"1", b"2", b"3"]
        opened.ask("DELETE", "/readers/spark")
        told = opened.positions(reader="spark")["fragments"]
        assert {each["reader"] for each in told} == {None}
        with pytest.raises(DoorRefused, match="no position"):
            opened.move("spark", {99: 1})
