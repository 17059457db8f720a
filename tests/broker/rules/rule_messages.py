"""Messages for the tests of rules, and the short way to ask a rule about one."""

from __future__ import annotations

from partibus.broker.rule_descriptions import Properties, RuleDescription, SqlAction, SqlFilter
from partibus.broker.rules.compiling import Compiler
from partibus.broker.rules.grammar import parse_condition
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.rule_set import Outcome, RuleSet
from partibus.wire.codec import decode_all, encode
from partibus.wire.message_properties import Head
from partibus.wire.values import Symbol

BODY = b"\x00\x53\x75\xa0\x04body"
PLACES = {
    "message_id": 0, "to": 2, "subject": 3, "reply_to": 4, "correlation_id": 5,
    "content_type": 6, "group_id": 10, "reply_to_group_id": 12,
}  # fmt: skip


def bare(user: dict[str, object] | None = None, **fields: object) -> bytes:
    """A message from the properties on."""
    items: list[object] = [None] * 13
    for name, value in fields.items():
        items[PLACES[name]] = value
    properties = b"\x00\x53\x73" + encode(items) if fields else b""
    named = b"\x00\x53\x74" + encode(user) if user else b""
    return properties + named + BODY


def view(user: dict[str, object] | None = None, **fields: object) -> MessageView:
    """A message with these application properties and these fields of the properties."""
    return MessageView(bare(user, **fields))


def annotated(annotations: dict[str, object], **known: int) -> MessageView:
    """A message with these annotations."""
    pairs = b"".join(encode(Symbol(key)) + encode(value) for key, value in annotations.items())
    return MessageView(bare(message_id="id"), pairs, len(annotations), **known)  # type: ignore[arg-type]


def holds(expression: str, message: MessageView, parameters: Properties = ()) -> bool | None:
    """What a condition says of a message: True, False, or None for unknown."""
    compiler = Compiler(parameters)
    test = compiler.test(parse_condition(expression))
    message.read(None if compiler.reads_any else frozenset(compiler.user_names))
    return test(message)


def apply(action: str, message: MessageView, parameters: Properties = ()) -> Outcome:
    """What becomes of a message by an action."""
    rule = RuleDescription("rule", SqlFilter("1=1"), SqlAction(action, parameters))
    return RuleSet([rule]).evaluate(message)


def changed(action: str, message: MessageView) -> tuple[list[object], dict[object, object]]:
    """The properties and application properties of the copy that an action makes."""
    outcome = apply(action, message)
    assert outcome.failure is None, outcome.failure
    (copy,) = outcome.copies
    assert copy.revision is not None
    head = Head(copy.revision.head)
    fields = [decode_all(each) for each in head.fields()]
    at = copy.revision.head.rindex(b"\x00\x53\x74") + 3
    return fields, decode_all(copy.revision.head[at:])
