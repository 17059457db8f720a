"""A live broker, and commands run against it as from a shell, without the price of a process."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from partibus.cli.commands import commands, exit_code
from partibus.testing.serve import LiveBroker


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("cli"), nodes=2) as broker:
        yield broker


@pytest.fixture
def partibus(broker: LiveBroker) -> Callable[..., Ran]:
    """Run a command; its exit code is the one that a shell would see."""

    def run(*arguments: str, stdin: str = "", connection: str | None = None) -> Ran:
        environment = {"SERVICEBUS_CONNECTION_STRING": connection or broker.connection_string}
        result = CliRunner(env=environment).invoke(
            commands, list(arguments), input=io.BytesIO(stdin.encode())
        )
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            assert isinstance(error, Exception)
            code = exit_code(error)
            if code is None:
                raise error
            return Ran(code, result.stdout, str(error))
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run
