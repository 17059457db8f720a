"""Style that fails instead of nagging: lengths, names, purity, and tests that mirror the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "partibus"
TESTS = ROOT / "tests"

MODULE_LINES_MAX = 600
MODULE_LINES_GOOD = 400
FUNCTION_LINES_MAX = 60

# Modules that are long for a reason. Nobody else may become as long without giving one.
LONG_MODULES = {
    "broker/fragment.py": "one state machine; cut in two, its halves would know each other",
    "engine/connection.py": "one state machine",
    "gateway/connection.py": "the turns of a connection, which all its events share",
    "runtime/driver.py": "one store's life, commits and reads, which share all their state",
    "runtime/host.py": "one request after the other, none of them long",
    "runtime/node.py": "the one face that the doors see",
    "testing/contracts.py": "a list of short promises",
}
# Functions that see every message, where a call costs as much as the step it would name.
LONG_FUNCTIONS = {"wire/message_build.py:delivery"}

FORBIDDEN_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "base",
    "manager",
    "misc",
    "core",
}
PURE_ROOMS = ("wire", "engine", "broker")

# Test files with a subject other than one module of their room.
OTHER_SUBJECTS = {
    "client/test_examples.py",
    "engine/test_corpus.py",
    "gateway/test_hostile.py",
    "gateway/test_rights.py",
    "pipeline/jobs/test_commands.py",
    "pipeline/test_notebook.py",
    "pipeline/test_tutorial.py",
    "portal/test_browser.py",
    "store/test_contract.py",
    "store/test_disk.py",
    "store/test_kill.py",
    "wire/test_against_proton.py",
    "wire/test_against_pyamqp.py",
    "test_docs.py",
    "test_tidy.py",
}
LOADED_BY_PYTEST = {Path("testing/plugin.py")}
# Folders of tests that look at the whole, not at a room.
WHOLE = {"chaos", "conformance", "corpus", "machine", "simulation"}


def modules() -> Iterator[Path]:
    return (path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def each_module() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", list(modules()), ids=str)


@each_module()
def test_a_module_says_what_it_is_for(module: Path) -> None:
    assert ast.get_docstring(tree(SOURCE / module)), "a module opens by saying what it is for"


@each_module()
def test_a_module_can_be_read_in_one_sitting(module: Path) -> None:
    lines = len((SOURCE / module).read_text().splitlines())
    assert lines <= MODULE_LINES_MAX
    assert lines <= MODULE_LINES_GOOD or str(module) in LONG_MODULES


@each_module()
def test_a_function_fits_a_screen(module: Path) -> None:
    too_long = [
        f"{module}:{node.name}"
        for node in ast.walk(tree(SOURCE / module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert set(too_long) <= LONG_FUNCTIONS


@each_module()
def test_nothing_is_called_a_drawer(module: Path) -> None:
    words = {word for part in module.with_suffix("").parts for word in part.split("_")}
    assert not words & FORBIDDEN_NAMES


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_the_pure_rooms_never_wait(room: str) -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        f"{path.name}:{node.lineno}"
        for path in (SOURCE / room).rglob("*.py")
        for node in ast.walk(tree(path))
        if isinstance(node, waiting)
    ]
    assert not found


def test_every_test_file_stands_beside_what_it_tests() -> None:
    stray = []
    for path in TESTS.rglob("test_*.py"):
        test = path.relative_to(TESTS)
        if test.parts[0] in WHOLE or str(test) in OTHER_SUBJECTS:
            continue
        subject = test.stem.removeprefix("test_")
        beside = SOURCE / test.parent
        # test_fragment_model.py tests fragment.py too.
        if not any(subject == each.stem or subject.startswith(f"{each.stem}_")
                   for each in beside.glob("*.py")):  # fmt: skip
            stray.append(str(test))
    assert not stray


def test_every_module_is_tested_itself_or_through_a_neighbour() -> None:
    tested = {path for path in modules() if (TESTS / path.parent / f"test_{path.name}").exists()}
    for file in [*TESTS.rglob("*.py"), *(SOURCE / "testing").glob("*.py")]:
        tested |= set(imported(file))
    found = set(tested)
    while found:
        neighbours = {
            each
            for module in found
            for each in imported(SOURCE / module)
            if each.parent == module.parent
        }
        found = neighbours - tested
        tested |= found
    plain = {path for path in modules() if path.name not in ("__init__.py", "__main__.py")}
    assert not sorted(map(str, plain - tested - LOADED_BY_PYTEST))


def imported(file: Path) -> Iterator[Path]:
    """The modules of ours that a file imports."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partibus"):
            place = SOURCE.joinpath(*(node.module or "").split(".")[1:])
            if place.with_suffix(".py").exists():
                yield place.with_suffix(".py").relative_to(SOURCE)
            for alias in node.names:
                if (place / f"{alias.name}.py").exists():
                    yield (place / f"{alias.name}.py").relative_to(SOURCE)
