"""A live namespace for the vendor's clients, and a way to run their programs in other languages.

Each program does what an application does and prints one line per promise: "ok KIND/NAME" or
"not ok KIND/NAME: why". A language whose tools are not on the machine is skipped by name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partibus.testing.serve import LiveBroker

KINDS = {"conventional": False, "partitioned": True}
# Downloads on a slow line are part of it.
INSTALL_S_MAX = 420
PROGRAM_S_MAX = 300
SHOWN_MAX = 3000

# What was not kept, by promise; an empty text where it was.
Kept = dict[str, str]
# How the tools say that there is no network; any other failure is ours.
_OFFLINE = re.compile(
    r"ENOTFOUND|ECONNREFUSED|EAI_AGAIN|ETIMEDOUT|dial tcp|no such host"
    r"|Could not transfer|Unknown host|Connection refused"
)
_LINE = re.compile(r"^(not ok|ok) (\S+?)(?:: (.*))?$")


@pytest.fixture(scope="session")
def live_namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """A broker of two nodes in processes of their own, with its data on disk."""
    with LiveBroker(tmp_path_factory.mktemp("live"), nodes=2) as broker:
        yield broker
        assert broker.terminate() == 0


@pytest.fixture(scope="session")
def run_program(live_namespace: LiveBroker) -> Callable[..., Kept]:
    """Run a program against entities of its own; what it says of each promise."""

    def run(language: str, command: list[str], directory: Path) -> Kept:
        for kind, is_partitioned in KINDS.items():
            name = f"{language}-{kind}"
            live_namespace.create_queue(name, enable_partitioning=is_partitioned)
            live_namespace.create_queue(
                f"{name}-sessions", enable_partitioning=is_partitioned, requires_session=True
            )
            topic = live_namespace.create_topic(f"{name}-topic", enable_partitioning=is_partitioned)
            live_namespace.create_subscription(topic, "sub")
        environment = os.environ | {
            "SERVICEBUS_CONNECTION_STRING": live_namespace.connection_string,
            # Administration is in TLS only; what to trust is told in each language's way.
            "SERVICEBUS_TLS_CONNECTION_STRING": live_namespace.tls_connection_string,
            "SSL_CERT_FILE": str(live_namespace.authority),
            "NODE_EXTRA_CA_CERTS": str(live_namespace.authority),
            "ENTITY_PREFIX": f"{language}-",
        }
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S_MAX,
            check=False,
        )
        lines = filter(None, map(_LINE.match, done.stdout.splitlines()))
        kept = {line[2]: "" if line[1] == "ok" else line[3] or "it failed" for line in lines}
        assert kept, f"no promise was tried: {(done.stdout + done.stderr)[-SHOWN_MAX:]}"
        return kept

    return run


@pytest.fixture(scope="session")
def prepare() -> Callable[[list[str], Path], None]:
    """Run a command that fetches or builds what a program needs; skip where tools are missing."""

    def run(command: list[str], directory: Path) -> None:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not on this machine")
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
            check=False,
        )
        said = (done.stdout + done.stderr)[-SHOWN_MAX:]
        if done.returncode and _OFFLINE.search(said):
            pytest.skip(f"{command[0]} reached no registry: {said}")
        assert not done.returncode, f"{' '.join(command)}: {said}"

    return run
