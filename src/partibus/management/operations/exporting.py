"""`GET /$partibus/configuration`: the namespace as a configuration file that would make it again.

Access rules come without their keys, which are made anew where the file is applied; with
`?keys=true` they are in it. Messages and pipelines are not.
"""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from partibus.broker.access import AccessRule, Right
from partibus.broker.access_rules import write_rights
from partibus.broker.descriptions import Entity, write_description
from partibus.broker.names import subscription_name
from partibus.broker.rule_descriptions import write_rule
from partibus.management.calls import Call
from partibus.store.snapshot import Snapshot

_PREMIUM = "premium"


async def export(call: Call) -> Response:
    """All entities with their properties, rules and access rules."""
    call.require(Right.MANAGE, "")
    call.node.refresh()
    keys = call.request.query_params.get("keys") == "true"
    return JSONResponse(configuration_of(call.node.snapshot, keys=keys))


def configuration_of(snapshot: Snapshot, *, keys: bool) -> dict[str, object]:
    """What a file must say for this namespace."""
    settings = snapshot.settings
    entities = [each for each in snapshot.by_id.values() if not each.topic]
    namespace: dict[str, object] = {"Name": settings.name, "Profile": settings.profile_name}
    if settings.premium_fragments and settings.profile_name == _PREMIUM:
        namespace["Partitions"] = settings.premium_fragments
    if settings.limits:
        namespace["Limits"] = dict(settings.limits)
    namespace |= _access(snapshot.rules_of(), keys=keys)
    for name, kind in (("Queues", "queue"), ("Topics", "topic")):
        namespace[name] = [
            _section(snapshot, each, keys=keys) for each in entities if each.kind == kind
        ]
    return {"UserConfig": {"Namespaces": [namespace]}}


def _section(snapshot: Snapshot, entity: Entity, *, keys: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "Name": entity.name,
        "Properties": write_description(entity.description),
        **_access(snapshot.rules_of(entity), keys=keys),
    }
    if entity.kind == "topic":
        found["Subscriptions"] = [
            {
                "Name": subscription_name(each.name),
                "Properties": write_description(each.description),
                "Rules": [
                    {"Name": rule.name, "Properties": write_rule(rule)}
                    for rule in snapshot.rules_of_subscription(each)
                ],
            }
            for each in snapshot.subscriptions_of(entity)
        ]
    return found


def _access(rules: tuple[AccessRule, ...], *, keys: bool) -> dict[str, object]:
    written = []
    for rule in rules:
        each: dict[str, object] = {"KeyName": rule.name, "Rights": write_rights(rule.rights)}
        if keys:
            each |= {"PrimaryKey": rule.primary_key, "SecondaryKey": rule.secondary_key}
        written.append(each)
    return {"AuthorizationRules": written} if written else {}
