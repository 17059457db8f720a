"""The lifetime counters of an entity's fragments, as the broker tells them in its metrics.

Each fragment's numbers are from one committed state. Those of different fragments may be moments
apart, so what is added up over fragments is exact only where nobody sends or receives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.errors import JobFailed

GONE = ("completed", "dead_lettered", "expired", "forwarded", "discarded")
STATES = ("active", "deferred", "scheduled")
SUBQUEUES = ("active", "dead_letter", "transfer", "transfer_dead_letter")

_SAMPLE = re.compile(r"^partibus_messages(?:_(?P<total>\w+)_total)?\{(?P<labels>.*)\} (?P<n>\d+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(slots=True)
class Counts:
    """One fragment or sub-queue of it: what came, where it went, what is there."""

    fragment: int
    subqueue: str
    accepted: int = 0
    gone: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GONE, 0))
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))

    @property
    def present(self) -> int:
        """Messages that are there, in any state."""
        return sum(self.states.values())

    @property
    def missing(self) -> int:
        """Messages that nobody can account for; 0 in every state that a broker may be in."""
        return self.accepted - sum(self.gone.values()) - self.present


@dataclass(frozen=True, slots=True)
class EntityCounters:
    """All fragments of an entity that answer, and those that do not."""

    entity: str
    fragments: dict[tuple[int, str], Counts]
    unavailable: tuple[int, ...]

    def fragments_of(self, subqueue: str) -> list[Counts]:
        """The fragments of one sub-queue, in their order."""
        return [self.fragments[key] for key in sorted(self.fragments) if key[1] == subqueue]

    def present(self, subqueue: str) -> int:
        """How many messages a sub-queue has."""
        return sum(each.present for each in self.fragments_of(subqueue))


def read_counters(broker: Broker, entity: str) -> EntityCounters:
    """Ask for the counters of an entity (without a sub-queue's name). Needs the right Manage."""
    with broker.administration() as admin:
        places: Any = admin.extension("GET", f"fragments/{entity}")
        text = admin.metrics()
    name = places["entity"]
    unavailable = tuple(p["partition"] for p in places["fragments"] if not p["available"])
    found = {
        (place["partition"], "active"): Counts(place["partition"], "active")
        for place in places["fragments"]
        if place["available"]
    }
    for counts in parse(text, name):
        found[counts.fragment, counts.subqueue] = counts
    if "partibus_fragments_left_out" in text and not re.search(
        r"^partibus_fragments_left_out\{.*\} 0$", text, re.MULTILINE
    ):
        raise JobFailed("the namespace has more fragments than its metrics tell of")
    return EntityCounters(name, found, unavailable)


def parse(text: str, entity: str) -> list[Counts]:
    """The counters of one entity in the text of `/metrics`."""
    found: dict[tuple[int, str], Counts] = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        labels = {key: _plain(value) for key, value in _LABEL.findall(sample["labels"])}
        if labels.get("entity", "").lower() != entity.lower():
            continue
        where = int(labels["partition"]), labels["subqueue"]
        counts = found.setdefault(where, Counts(*where))
        number = int(sample["n"])
        if sample["total"] is None:
            counts.states[labels["state"]] = number
        elif sample["total"] == "accepted":
            counts.accepted = number
        else:
            counts.gone[sample["total"]] = number
    return list(found.values())


def _plain(text: str) -> str:
    return re.sub(r'\\\\|\\"|\\n', lambda found: _ESCAPES[found.group()], text)
