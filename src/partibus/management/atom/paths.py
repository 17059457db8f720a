"""What a path below the namespace names: an entity, a subscription, a rule, or a list of them.

Keywords (`subscriptions`, `rules`, `$Resources`) count in any case; names are kept as they come,
percent escapes resolved already, so `a%2Fb` is `a/b`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from partibus.broker.names import subscription_path

PATH_LENGTH_MAX = 1_024


class Kind(Enum):
    """What a path may name."""

    ENTITY = "entity"
    SUBSCRIPTION = "subscription"
    SUBSCRIPTIONS = "subscriptions"
    RULE = "rule"
    RULES = "rules"
    ENTITIES = "entities"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    # A queue or topic; for a list of entities "queues" or "topics".
    entity: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def path(self) -> str:
        """The path of the subscription, or of the entity: what access is asked for."""
        if self.subscription:
            return subscription_path(self.entity, self.subscription)
        return self.entity


def read_path(path: str) -> Target:
    """The target of a path."""
    parts = path.strip("/").split("/")
    words = [part.lower() for part in parts]

    def before(count: int) -> str:
        return "/".join(parts[:-count])

    if words[0] == "$resources" and len(words) == 2:
        return Target(Kind.ENTITIES, words[1])
    if words == ["$namespaceinfo"]:
        return Target(Kind.NAMESPACE)
    if len(words) > 4 and words[-4] == "subscriptions" and words[-2] == "rules":
        return Target(Kind.RULE, before(4), parts[-3], parts[-1])
    if len(words) > 3 and words[-3] == "subscriptions" and words[-1] == "rules":
        return Target(Kind.RULES, before(3), parts[-2])
    if len(words) > 2 and words[-2] == "subscriptions":
        return Target(Kind.SUBSCRIPTION, before(2), parts[-1])
    if len(words) > 1 and words[-1] == "subscriptions":
        return Target(Kind.SUBSCRIPTIONS, before(1))
    return Target(Kind.ENTITY, "/".join(parts))
