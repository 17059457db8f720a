"""Spans with the real OpenTelemetry: tied to the contexts that messages bring, and none without."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from partibus.runtime.spans import Spans
from partibus.testing.namespace import Namespace

Find = Callable[[str], list[ReadableSpan]]
TRACE = "0af7651916cd43dd8448eb211c80319c"


def context(number: int) -> str:
    return f"00-{TRACE}-{number:016x}-01"


@pytest.fixture
def find(servicebus_namespace: Namespace) -> Iterator[Find]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    servicebus_namespace._running().spans = Spans(provider.get_tracer("partibus"))

    def named(start: str) -> list[ReadableSpan]:
        return [each for each in exporter.get_finished_spans() if each.name.startswith(start)]

    yield named
    provider.shutdown()


@pytest.mark.parametrize("traced", [False, True])
def test_the_context_of_a_message_goes_through_untouched(
    servicebus_namespace: Namespace, request: pytest.FixtureRequest, traced: bool
) -> None:
    if traced:
        request.getfixturevalue("find")
    queue = servicebus_namespace.create_queue("q", enable_partitioning=True)
    given = {"Diagnostic-Id": context(1), "traceparent": context(2), "tracestate": "a=b"}
    with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(b"x", application_properties=given))
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
    properties = message.application_properties or {}
    assert {k.decode(): v.decode() for k, v in properties.items()} == given  # type: ignore[union-attr]


def test_groups_of_messages_have_a_span_linked_to_their_contexts(
    servicebus_namespace: Namespace, find: Find
) -> None:
    queue = servicebus_namespace.create_queue("q")
    with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            batch = [
                ServiceBusMessage(b"x", application_properties={"Diagnostic-Id": context(number)})
                for number in (1, 2, 3)
            ]
            sender.send_messages([*batch, ServiceBusMessage(b"without")])
            own = {"traceparent": context(9), "Diagnostic-Id": "nonsense"}
            sender.send_messages(ServiceBusMessage(b"one", application_properties=own))
        group, one = find("send q")
        assert [f"{each.context.span_id}" for each in group.links] == ["1", "2", "3"]
        assert {f"{each.context.trace_id:032x}" for each in group.links} == {TRACE}
        attributes = group.attributes or {}
        assert attributes["messaging.batch.message_count"] == 4
        assert attributes["messaging.destination.name"] == "q"
        # One message alone: its trace goes on.
        assert one.parent is not None
        assert (f"{one.parent.trace_id:032x}", one.parent.span_id) == (TRACE, 9)
        with client.get_queue_receiver(queue) as receiver:
            got = receiver.receive_messages(5, max_wait_time=5)
            while len(got) < 5:
                got += receiver.receive_messages(5, max_wait_time=5)
            for message in got:
                receiver.complete_message(message)
            delivered = find("receive q")
            linked = {each.context.span_id for span in delivered for each in span.links}
            linked |= {span.parent.span_id for span in delivered if span.parent is not None}
            assert linked == {1, 2, 3, 9}
            sizes = [each.attributes or {} for each in delivered]
            assert sum(each["messaging.batch.message_count"] for each in sizes) == 5  # type: ignore[misc]
    settled = find("settle q")
    dispositions = {
        (each.attributes or {})["messaging.servicebus.disposition_status"] for each in settled
    }
    assert dispositions == {"complete"}


def test_what_is_refused_is_an_error_of_its_span(
    servicebus_namespace: Namespace, find: Find
) -> None:
    queue = servicebus_namespace.create_queue("s", requires_session=True)
    with ServiceBusClient.from_connection_string(
        servicebus_namespace.connection_string, retry_total=0
    ) as client:
        sender = client.get_queue_sender(queue)
        with sender, pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage(b"x"))
    (span,) = find("send s")
    assert not span.status.is_ok
    assert (span.attributes or {})["error.type"] == "amqp:not-allowed"


def test_management_over_both_doors_has_spans(servicebus_namespace: Namespace, find: Find) -> None:
    queue = servicebus_namespace.create_queue("q")
    with (
        ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        receiver.peek_messages(1)
    (peek,) = find("com.microsoft:peek-message q")
    assert (peek.attributes or {})["amqp.response.status_code"] == 204
    for method, path, route in (
        ("GET", "nothing", "/{path:path}"),
        ("POST", "q/messages", "/{entity:path}/messages"),
    ):
        address = f"http://127.0.0.1:{servicebus_namespace.http_port}/{path}"
        headers = {"traceparent": context(7)}
        request = urllib.request.Request(address, headers=headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(request)
        answer.value.close()
        (span,) = find(f"{method} ")
        assert span.name == f"{method} {route}"
        assert span.parent is not None
        assert span.parent.span_id == 7
        assert (span.attributes or {})["http.response.status_code"] == 401


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("import sys; sys.modules['opentelemetry'] = None", "NoneType"),
        ("", "NoneType"),
        ("from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider; "
         "trace.set_tracer_provider(TracerProvider())", "Spans"),
    ],
    ids=["not installed", "not set up", "set up"],
)  # fmt: skip
def test_spans_are_made_only_where_somebody_would_see_them(before: str, found: str) -> None:
    program = f"{before}\nfrom partibus.runtime.spans import spans_of_process\n"
    program += "print(type(spans_of_process()).__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == found, run.stderr
