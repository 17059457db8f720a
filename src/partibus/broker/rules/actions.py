"""Actions: SET and REMOVE, applied to the copy of a message that a rule makes.

The statements run in order and see what earlier ones did. Out come the sections that changed; the
body is not looked at. System properties are changed in the message only: where it lies, and when
it expires, has been decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from partibus.broker.message import HEADERS_BYTES_MAX, KEY_LENGTH_MAX
from partibus.broker.rules.compiling import Compiler, Reader
from partibus.broker.rules.conversion import converted
from partibus.broker.rules.errors import EvaluationError, HeaderSizeExceeded
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.system_properties import SystemProperty, settable_property
from partibus.broker.rules.tree import Property, Remove, Statement
from partibus.broker.rules.values import TICKS_PER_MS, amqp_of
from partibus.wire.errors import DecodeError, EncodeError
from partibus.wire.message_properties import property_key, replace_annotations

RULE_NAME = "RuleName"


@dataclass(frozen=True, slots=True)
class Revision:
    """What an action made of a message: the parts that stand in for the original's."""

    # Properties and application properties: everything before the body.
    head: bytes
    annotations: bytes
    annotation_count: int
    ttl_ms: int


@dataclass(slots=True)
class _Changes:
    """What the statements have changed so far."""

    view: MessageView
    fields: dict[int, object] = field(default_factory=dict)
    annotations: dict[str, object] = field(default_factory=dict)
    named: dict[str, tuple[str, object]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


Step = Callable[[_Changes], None]


class Action:
    """The statements of an action, compiled."""

    __slots__ = ("_steps",)

    def __init__(self, statements: Iterable[Statement], compiler: Compiler) -> None:
        self._steps = [_step(each, compiler) for each in statements]

    def apply(self, view: MessageView, rule: str) -> Revision:
        """Run the statements for a message, on behalf of the rule of this name."""
        changes = _Changes(view.revision())
        try:
            for step in self._steps:
                step(changes)
        finally:
            view.steps = changes.view.steps
        changes.named[property_key(RULE_NAME)] = (RULE_NAME, rule)
        changes.removed.discard(property_key(RULE_NAME))
        return _revised(changes)


def _revised(changes: _Changes) -> Revision:
    view = changes.view
    named = {name: amqp_of(value) for name, value in changes.named.values()}
    try:
        head = view.head.replaced(changes.fields, named, changes.removed)
        annotations, count = replace_annotations(
            view.annotations, view.annotation_count, changes.annotations
        )
    except (DecodeError, EncodeError) as error:
        raise EvaluationError(str(error)) from error
    size = len(head) + len(annotations)
    if size > HEADERS_BYTES_MAX:
        raise HeaderSizeExceeded(
            f"with the action's changes the properties have {size} bytes; "
            f"{HEADERS_BYTES_MAX} are allowed"
        )
    return Revision(head, annotations, count, view.ttl_ms)


def _step(statement: Statement, compiler: Compiler) -> Step:
    target = statement.property
    if isinstance(statement, Remove):
        return _remove_system(target) if target.is_system else _remove_user(target)
    read = compiler.reader(statement.value)
    if target.is_system:
        return _set_system(target, read)
    # The value takes the type that the property has, so that is read as well.
    compiler.reader(target)
    return _set_user(target, read)


def _set_user(target: Property, read: Reader) -> Step:
    key = property_key(target.name)

    def step(changes: _Changes) -> None:
        user = changes.view.user
        value = read(changes.view)
        existing = user.get(key)
        if existing is not None:
            value = converted(value, type(existing))
        user[key] = value
        changes.named[key] = (target.name, value)
        changes.removed.discard(key)

    return step


def _remove_user(target: Property) -> Step:
    key = property_key(target.name)

    def step(changes: _Changes) -> None:
        changes.view.user.pop(key, None)
        changes.named.pop(key, None)
        changes.removed.add(key)

    return step


def _set_system(target: Property, read: Reader) -> Step:
    def step(changes: _Changes) -> None:
        wanted = settable_property(target.name)
        value = read(changes.view)
        if value is None:
            _clear(changes, wanted)
            return
        assert wanted.settable is not None
        value = converted(value, wanted.settable)
        if wanted.is_key and len(str(value)) > KEY_LENGTH_MAX:
            raise EvaluationError(
                f"{wanted.name} would have {len(str(value))} characters; "
                f"{KEY_LENGTH_MAX} are allowed"
            )
        _put(changes, wanted, value)

    return step


def _remove_system(target: Property) -> Step:
    return lambda changes: _clear(changes, settable_property(target.name))


def _clear(changes: _Changes, wanted: SystemProperty) -> None:
    if not wanted.removable:
        raise EvaluationError(f"{wanted.name} cannot be removed: every message has one")
    _put(changes, wanted, None)


def _put(changes: _Changes, wanted: SystemProperty, value: object) -> None:
    view = changes.view
    if wanted.field >= 0:
        encoded_as = wanted.encoded_as
        encoded = value if value is None or encoded_as is None else encoded_as(value)
        changes.fields[wanted.field] = encoded
    elif wanted.annotation:
        changes.annotations[wanted.annotation] = value
    elif wanted.name == "TimeToLive":
        ttl_ms = 0 if value is None else int(value) // TICKS_PER_MS  # type: ignore[call-overload]
        if ttl_ms < 0 or (ttl_ms == 0 and value is not None):
            raise EvaluationError("TimeToLive must be at least a millisecond")
        view.ttl_ms = ttl_ms
        view.system.pop("ExpiresAtUtc", None)
    view.system[wanted.name] = value
