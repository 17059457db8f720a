"""Spans of what clients ask for, where OpenTelemetry is installed and set up; else none at all.

One span for each group of messages that was sent, delivered or settled together, and one for each
management request: never one for each message. A span is tied to the contexts that its messages
bring with them (`traceparent`, or `Diagnostic-Id` of older clients). Messages go through as they
came. Where spans go is OpenTelemetry's business: only its API is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

from partibus.broker.errors import Refusal
from partibus.broker.message import Incoming
from partibus.runtime.requests import Delivered
from partibus.wire.errors import DecodeError
from partibus.wire.message_properties import Head
from partibus.wire.message_scan import scan

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

# Of how many messages of a group the contexts are looked for.
LINKS_MAX = 32
SYSTEM = "servicebus"
_TRACEPARENT, _DIAGNOSTIC_ID = "traceparent", "diagnostic-id"
_CONTEXT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SERVER_ERROR = 500

Sent = Callable[[list[int], Refusal | None], None]
Settled = Callable[[dict[bytes, Refusal]], None]


def spans_of_process(version: str = "") -> Spans | None:
    """How this process makes spans; None where nobody would see them."""
    if not IS_INSTALLED:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return Spans(provider.get_tracer("partibus", version))


class Spans:
    """Makes the spans of one node."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    # Groups of messages -----------------------------------------------------------------------

    def sending(self, entity: str, items: list[tuple[int, list[Incoming]]], sent: Sent) -> Sent:
        """A span until all of these are answered; what to tell them to."""
        messages = [message for _, group in items for message in group]
        span = self._start("send", entity, len(messages), (each.bare for each in messages))
        left = len(items)

        def answered(ids: list[int], refusal: Refusal | None) -> None:
            nonlocal left
            left -= len(ids)
            if refusal is not None:
                _failed(span, refusal)
            if left <= 0:
                span.end()
            sent(ids, refusal)

        return answered

    def delivering(self, entity: str, messages: list[Delivered]) -> None:
        """A span for messages that are written to their receiver now."""
        payloads = (scan(each.payload).bare for each in messages)
        self._start("receive", entity, len(messages), payloads).end()

    def settling(self, entity: str, outcome: str, count: int, settled: Settled) -> Settled:
        """A span until these are settled; what to tell it to."""
        span = self._start("settle", entity, count, ())
        span.set_attribute("messaging.servicebus.disposition_status", outcome)

        def answered(refused: dict[bytes, Refusal]) -> None:
            for refusal in islice(refused.values(), 1):
                _failed(span, refusal)
            span.end()
            settled(refused)

        return answered

    def _start(self, operation: str, entity: str, count: int, bare: Iterable[bytes]) -> trace.Span:
        found = [context for each in islice(bare, LINKS_MAX) if (context := _brought(each))]
        parent = None
        if count == 1 and found:
            # The one message's own trace goes on here.
            parent = trace.set_span_in_context(trace.NonRecordingSpan(found[0]))
        return self._tracer.start_span(
            f"{operation} {entity}",
            parent,
            trace.SpanKind.SERVER,
            {
                "messaging.system": SYSTEM,
                "messaging.destination.name": entity,
                "messaging.operation.name": operation,
                "messaging.batch.message_count": count,
            },
            None if parent else [trace.Link(context) for context in found],
        )

    # Requests ---------------------------------------------------------------------------------

    def asked(self, operation: str, entity: str, properties: Mapping[str, object]) -> Asked:
        """A span of a request on `$management`, until it is answered."""
        span = self._tracer.start_span(
            f"{operation} {entity}",
            _parent({name.lower(): value for name, value in properties.items()}),
            trace.SpanKind.SERVER,
            {
                "messaging.system": SYSTEM,
                "messaging.destination.name": entity,
                "messaging.operation.name": operation,
            },
        )
        return Asked(span)

    @contextmanager
    def answering(self, method: str, path: str, headers: Mapping[str, str]) -> Iterator[Asked]:
        """A span of an HTTP request on a path of the door, until it is answered."""
        span = self._tracer.start_span(
            f"{method} {path}",
            _parent(headers),
            trace.SpanKind.SERVER,
            {"http.request.method": method, "http.route": path},
        )
        asked = Asked(span, "http.response.status_code")
        try:
            yield asked
        except Refusal as refusal:
            asked.answered(refusal.status)
            raise
        finally:
            span.end()


class Asked:
    """A request that is under way."""

    def __init__(self, span: trace.Span, attribute: str = "amqp.response.status_code") -> None:
        self._span = span
        self._attribute = attribute

    def answered(self, status: int) -> None:
        """It is answered with this status."""
        self._span.set_attribute(self._attribute, status)
        if status >= _SERVER_ERROR:
            self._span.set_status(trace.StatusCode.ERROR)

    def end(self, status: int) -> None:
        """It is answered, and over."""
        self.answered(status)
        self._span.end()


def _failed(span: trace.Span, refusal: Refusal) -> None:
    span.set_attribute("error.type", refusal.condition)
    span.set_status(trace.StatusCode.ERROR, refusal.condition)


def _parent(named: Mapping[str, object]) -> Context | None:
    context = _context(named.get(_TRACEPARENT) or named.get(_DIAGNOSTIC_ID))
    return context and trace.set_span_in_context(trace.NonRecordingSpan(context))


def _brought(bare: bytes) -> trace.SpanContext | None:
    """The context that a message brings."""
    try:
        named = Head(bare).named((_TRACEPARENT, _DIAGNOSTIC_ID))
    except DecodeError:
        # Nobody but rules looks at application properties; those that are none break nothing here.
        return None
    return _context(named.get(_TRACEPARENT) or named.get(_DIAGNOSTIC_ID))


def _context(text: object) -> trace.SpanContext | None:
    found = _CONTEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    trace_id, span_id, flags = (int(each, 16) for each in found.groups())
    context = trace.SpanContext(trace_id, span_id, True, trace.TraceFlags(flags))
    return context if context.is_valid else None
