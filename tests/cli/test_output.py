"""Every command speaks to programs: `--output json` gives JSON, and nothing else on the output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from partibus.cli.commands import commands
from partibus.testing.serve import LiveBroker

# What they print is no result but a file, or they run until they are stopped.
NOT_SHOWN = {"serve", "cert export", "config export"}
# Those of Spark have tests of their own (tests/pipeline).
ELSEWHERE = ("pipeline ", "reader ", "staged")

CONFIG = '{"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "q"}]}]}}'


def all_commands(group: click.Group, name: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if isinstance(command, click.Group):
            found |= all_commands(command, f"{name}{each} ")
        elif not command.hidden:
            found[f"{name}{each}"] = command
    return found


# In this order: what later ones need is made by earlier ones.
LINES = [
    "version",
    "cert show --data DATA",
    "env --data DATA",
    "config validate CONFIG",
    "queue create json-q --set LockDuration=PT30S",
    "queue update json-q --set MaxDeliveryCount=7",
    "queue show json-q",
    "queue list",
    "topic create json-t",
    "topic update json-t --set UserMetadata=x",
    "topic show json-t",
    "topic list",
    "subscription create json-t s",
    "subscription update json-t s --set MaxDeliveryCount=7",
    "subscription show json-t s",
    "subscription list json-t",
    "rule create json-t s r --sql a=1",
    "rule update json-t s r --sql a=2",
    "rule show json-t s r",
    "rule list json-t s",
    "rule delete json-t s r --yes",
    "access-rule create mine --entity json-q --right Send",
    "access-rule list --entity json-q",
    "access-rule show mine --entity json-q",
    "access-rule rotate mine --entity json-q",
    "access-rule delete mine --entity json-q --yes",
    "send json-q one",
    "peek json-q",
    "fragments json-q",
    "where json-q key",
    "receive json-q --count 1",
    "dlq list json-q",
    "dlq resubmit json-q",
    "dlq purge json-q --yes",
    "queue purge json-q --yes",
    "subscription purge json-t s --yes",
    "topic purge json-t --yes",
    "subscription delete json-t s --yes",
    "topic delete json-t --yes",
    "queue delete json-q --yes",
]


def test_no_command_is_left_out() -> None:
    wanted = {
        name
        for name in all_commands(commands)
        if name not in NOT_SHOWN and not name.startswith(ELSEWHERE)
    }
    shown = {name for name in wanted if any(f"{each} ".startswith(f"{name} ") for each in LINES)}
    assert shown == wanted


def test_those_of_spark_can_be_asked_for_json_too() -> None:
    without = {
        name
        for name, command in all_commands(commands).items()
        if not any(each.name == "output" for each in command.params)
    }
    assert without == NOT_SHOWN


def test_every_command_answers_a_program_in_json(
    partibus: Callable[..., Any], broker: LiveBroker, tmp_path: Path
) -> None:
    config = tmp_path / "Config.json"
    config.write_text(CONFIG)
    said: dict[str, Any] = {}
    for line in LINES:
        words = line.replace("DATA", str(broker.data)).replace("CONFIG", str(config)).split()
        ran = partibus(*words, "--output", "json")
        assert ran.code == 0, (line, ran.err)
        said[line] = json.loads(ran.out)
    assert said["send json-q one"] == {"accepted": 1}
    assert said["receive json-q --count 1"]["body"] == "one"
    assert said["queue update json-q --set MaxDeliveryCount=7"]["MaxDeliveryCount"] == "7"
    assert said["rule update json-t s r --sql a=2"]["Filter"]["SqlExpression"] == "a=2"
    assert said["queue delete json-q --yes"] == {"deleted": "json-q"}
    assert said["config validate CONFIG"]["queues"] == 1
    assert "SERVICEBUS_CONNECTION_STRING" in said["env --data DATA"]


@pytest.mark.parametrize("name", ["queue show", "receive", "fragments", "queue purge"])
def test_a_program_is_told_a_failure_by_code_and_finds_nothing_on_the_output(
    partibus: Callable[..., Any], name: str
) -> None:
    words = [*name.split(), "nothing-of-this-name", "--output", "json"]
    ran = partibus(*words, *(["--yes"] if name.endswith("purge") else []))
    assert (ran.code, ran.out) == (8, "")
    assert "nothing-of-this-name" in ran.err
