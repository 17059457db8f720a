"""Lists of entities, subscriptions and rules, in pages of at most a hundred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityNotFound
from partibus.broker.properties import InvalidDescription
from partibus.management.atom import subscriptions
from partibus.management.atom.documents import feed_answer, url_of
from partibus.management.atom.entities import entry_of
from partibus.management.atom.paths import Target
from partibus.management.atom.rules import rule_entry
from partibus.management.calls import Call
from partibus.runtime.counting import count

PAGE_MAX = 100
_SKIP_DIGITS_MAX = 9
_KINDS = {"queues": "queue", "topics": "topic"}

T = TypeVar("T")


async def entities(call: Call, target: Target) -> Response:
    """All queues or all topics, by name."""
    call.require(Right.MANAGE, f"$Resources/{target.entity}")
    kind = _KINDS.get(target.entity)
    if kind is None:
        raise EntityNotFound(f"There are lists of {' and '.join(_KINDS)}, not of this.")
    call.node.refresh()
    everything = call.node.snapshot.entities
    found = [everything[key] for key in sorted(everything) if everything[key].kind == kind]
    path = f"$Resources/{target.entity}"
    page, next_url = _page(call, path, found)
    counts = await count(call.node, page)
    entries = [entry_of(call, *each) for each in zip(page, counts, strict=True)]
    return feed_answer(call, target.entity.capitalize(), path, entries, next_url)


async def subscriptions_of(call: Call, target: Target) -> Response:
    """The subscriptions of a topic, by name."""
    call.require(Right.MANAGE, target.path)
    topic = subscriptions.topic_of(call, target)
    found = sorted(call.node.snapshot.subscriptions_of(topic), key=_key)
    path = f"{topic.name}/Subscriptions"
    page, next_url = _page(call, path, found)
    counts = await count(call.node, page)
    entries = [subscriptions.entry_of(call, *each) for each in zip(page, counts, strict=True)]
    return feed_answer(call, "Subscriptions", path, entries, next_url)


async def rules_of(call: Call, target: Target) -> Response:
    """The rules of a subscription, the oldest first."""
    call.require(Right.MANAGE, target.path)
    subscription = subscriptions.existing(call, target)
    path = f"{subscription.name}/Rules"
    found = call.node.snapshot.rules_of_subscription(subscription)
    page, next_url = _page(call, path, found)
    entries = [rule_entry(subscription, each) for each in page]
    return feed_answer(call, "Rules", path, entries, next_url)


def _key(entity: Entity) -> str:
    return entity.key


def _page(call: Call, path: str, everything: Sequence[T]) -> tuple[Sequence[T], str | None]:
    """The page that was asked for, and where the next one is."""
    skip, top = _number(call, "$skip", 0), _number(call, "$top", PAGE_MAX)
    top = min(top, PAGE_MAX) or PAGE_MAX
    page = everything[skip : skip + top]
    if skip + top >= len(everything):
        return page, None
    return page, url_of(call, path, **{"$skip": skip + top, "$top": top})


def _number(call: Call, name: str, default: int) -> int:
    given = call.request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= _SKIP_DIGITS_MAX):
        raise InvalidDescription(name, given, "a whole number")
    return int(given)
