"""What can be said on the command line is documented, and what is promised names its proof."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from partibus.broker.descriptions import QUEUE_PROPERTIES
from partibus.cli.commands import EXIT_CODES, commands
from partibus.config import PROFILE_NAMES

ROOT = Path(__file__).resolve().parent.parent
OPERATING = (ROOT / "docs" / "OPERATING.md").read_text()
CLI = (ROOT / "docs" / "CLI.md").read_text()
COMPATIBILITY = (ROOT / "docs" / "COMPATIBILITY.md").read_text()

PROMISES = [
    f"{letter}{number}"
    for letter, count in
    {"P": 10, "K": 6, "R": 6, "T": 7, "F": 2, "M": 5, "A": 4, "S": 6, "U": 3}.items()
    for number in range(1, count + 1)
]  # fmt: skip
STATUSES = ("works", "partly", "later")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def visible(group: click.Group, name: str = "partibus") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from visible(command, f"{name} {command.name}")
        else:
            yield f"{name} {command.name}", command


COMMANDS = dict(visible(commands))
OPTIONS = {
    option.opts[0]: option
    for command in COMMANDS.values()
    for option in command.params
    if isinstance(option, click.Option)
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"`{command}" in OPERATING + CLI


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_documented_with_its_environment_variable(name: str) -> None:
    variable = OPTIONS[name].envvar
    if variable:
        assert f"| `{name}` | `{variable}` |" in OPERATING + CLI
    else:
        assert f"`{name}" in CLI


@pytest.mark.parametrize("code", [0, 2, *EXIT_CODES.values()])
def test_every_exit_code_is_documented(code: int) -> None:
    assert re.search(rf"^\| {code} \| \w", OPERATING, re.MULTILINE)


@pytest.mark.parametrize("name", [each.name for each in QUEUE_PROPERTIES])
def test_every_property_of_a_queue_is_documented(name: str) -> None:
    assert f"`{name}`" in OPERATING


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_every_profile_is_documented(name: str) -> None:
    assert f"`{name}`" in OPERATING


def rows() -> dict[str, tuple[str, str]]:
    """Status and last column of each promise."""
    found = re.findall(
        r"^\| ([A-Z]\d+) \|[^|]*\| (\w+) \| ?(.*?) ?\|$", COMPATIBILITY, re.MULTILINE
    )
    return {promise: (status, note) for promise, status, note in found}


def test_every_promise_has_one_row() -> None:
    ids = re.findall(r"^\| ([A-Z]\d+) \|", COMPATIBILITY, re.MULTILINE)
    assert ids == PROMISES
    assert list(rows()) == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_that_is_kept_names_a_test_that_exists(promise: str) -> None:
    status, note = rows()[promise]
    assert status in STATUSES
    named = NAMED_TEST.findall(note)
    assert named or status == "later"
    for path, name in named:
        assert re.search(rf"^ *(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (
            name
        )


@pytest.mark.parametrize(
    "document", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=str
)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_readmes_test_command_is_what_ci_runs() -> None:
    assert "make test" in (ROOT / "README.md").read_text()
    assert "make test" in (ROOT / ".ci" / "run").read_text()
