"""A real `partibus serve` in processes of its own, for tests that kill and pause them.

Starts the supervisor with its nodes, waits until it says that it is ready, and knows which process
is which node. It talks to the broker only as an operator could: by signals, by the catalog that
any process may write, and by what the broker prints.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from partibus.runtime.authority import AUTHORITY_NAME, DIRECTORY_NAME
from partibus.runtime.serving import CATALOG_NAME
from partibus.store.catalog import ROOT_RULE, Catalog, Snapshot
from partibus.testing.declarations import (
    Filtering,
    connection_string,
    filter_rules_of,
    queue_of,
    rule_of,
    subscription_of,
    topic_of,
)
from partibus.testing.processes import children_of, command_line_of, exists

HOST = "127.0.0.1"
# Long enough for a busy machine; a broker that takes longer is a failure.
PATIENCE_S = 60.0
POLL_S = 0.02
HEALTHY_ANSWERS = 4
MS_PER_S = 1000
READY_LINE = "ready"

T = TypeVar("T")


class BrokerFailed(Exception):
    """The broker did not do what was expected of it in time; its log is in the text."""


class LiveBroker:
    """A supervisor with its nodes on one data directory; may be killed and started again."""

    def __init__(self, directory: Path, *, nodes: int = 2, options: tuple[str, ...] = ()) -> None:
        self.data = directory / "data"
        self.log = directory / "serve.log"
        self.nodes = nodes
        # The same over restarts, so that clients find the broker again.
        self.port, self.http_port = _free_ports(2)
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._printed: list[str] = []
        self._reader: threading.Thread | None = None

    # Life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and wait until it is ready."""
        assert self._process is None, "the broker is running"
        self._printed = []
        is_ready = threading.Event()
        with self.log.open("ab") as log:
            # The command is our own: this Python, this program.
            self._process = subprocess.Popen(  # noqa: S603
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # A process group of its own: kill_all() must not reach the tests.
                start_new_session=True,
            )
        self._reader = threading.Thread(
            target=self._read, args=(self._process, is_ready), daemon=True
        )
        self._reader.start()
        if not is_ready.wait(PATIENCE_S) or READY_LINE not in self._printed:
            self.kill_all()
            raise self._failed("it did not become ready")

    def _command(self) -> list[str]:
        ports = ["--port", str(self.port), "--http-port", str(self.http_port)]
        return [
            *(sys.executable, "-m", "partibus", "serve", "--data", str(self.data)),
            *("--host", HOST, "--nodes", str(self.nodes)),
            *ports,
            *self._options,
        ]

    def _read(self, process: subprocess.Popen[str], is_ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._printed.append(line.rstrip())
                if line.rstrip() == READY_LINE:
                    is_ready.set()
        # The end of the output is the end of the broker; nobody needs to wait any longer.
        is_ready.set()

    def terminate(self) -> int:
        """Ask it to stop in order (SIGTERM); returns its exit code."""
        process = self._running()
        process.terminate()
        return self._ended()

    def kill_all(self) -> None:
        """SIGKILL for the supervisor and all nodes, at the same moment."""
        process = self._running()
        processes = [process.pid, *children_of(process.pid)]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._ended()
        self._until(lambda: not any(map(exists, processes)), "killed processes were still there")

    def _ended(self) -> int:
        process, self._process = self._running(), None
        assert self._reader is not None
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise self._failed("it did not end") from error
        self._reader.join(PATIENCE_S)
        return code

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker is not running"
        return self._process

    def __enter__(self) -> LiveBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill_all()

    # Processes --------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        return self._running().pid

    def node_pid(self, node: int) -> int:
        """The process of a node, which may be starting just now."""
        found: list[int] = []

        def find() -> bool:
            mine = re.compile(rf'"index":\s*{node}\b')
            processes = children_of(self.pid)
            found[:] = [pid for pid in processes if mine.search(command_line_of(pid))]
            return bool(found)

        self._until(find, f"node {node} has no process")
        return found[0]

    def kill(self, node: int) -> int:
        """SIGKILL for one node; returns the process that was killed."""
        pid = self.node_pid(node)
        os.kill(pid, signal.SIGKILL)
        return pid

    def pause(self, node: int) -> int:
        """SIGSTOP for one node; returns the process that was paused."""
        pid = self.node_pid(node)
        os.kill(pid, signal.SIGSTOP)
        return pid

    def resume(self, pid: int) -> None:
        """SIGCONT for a paused process, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def wait_for_successor(self, node: int, pid: int) -> None:
        """Wait until the node is served by another process than this one, and all are well."""
        self._until(lambda: self.node_pid(node) != pid, f"node {node} was not restarted")
        self.wait_until_healthy()

    # What a test uses -------------------------------------------------------------------------

    @property
    def printed(self) -> list[str]:
        """The lines on standard output since the last start."""
        return list(self._printed)

    @property
    def connection_string(self) -> str:
        """For ServiceBusClient.from_connection_string: everything is allowed with it."""
        rules = {each.name: each for each in self.snapshot().rules_of()}
        return connection_string(self.port, rules[ROOT_RULE])

    @property
    def tls_connection_string(self) -> str:
        """The same in TLS, which is spoken on the same port."""
        return self.connection_string.replace("UseDevelopmentEmulator=true;", "")

    @property
    def authority(self) -> Path:
        """The certificate that clients have to trust for TLS."""
        return self.data / DIRECTORY_NAME / AUTHORITY_NAME

    def create_queue(self, name: str, **properties: object) -> str:
        """Make a queue, as Namespace.create_queue does; returns its name."""

        def create(catalog: Catalog) -> int:
            description = queue_of(name, properties, catalog.load().settings.profile)
            return catalog.create_queue(description, round(time.time() * MS_PER_S))

        self._catalog(create)
        return name

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages."""
        self._catalog(lambda catalog: catalog.delete_queue(name, round(time.time() * MS_PER_S)))

    def create_topic(self, name: str, **properties: object) -> str:
        """Make a topic, as Namespace.create_topic does; returns its name."""

        def create(catalog: Catalog) -> int:
            description = topic_of(name, properties, catalog.load().settings.profile)
            return catalog.create_topic(description, round(time.time() * MS_PER_S))

        self._catalog(create)
        return name

    def create_subscription(
        self,
        topic: str,
        name: str,
        rules: Mapping[str, Filtering] | None = None,
        **properties: object,
    ) -> str:
        """Make a subscription, as Namespace.create_subscription does; returns its name."""

        def create(catalog: Catalog) -> int:
            profile = catalog.load().settings.profile
            description = subscription_of(topic, name, properties, profile)
            now_ms = round(time.time() * MS_PER_S)
            return catalog.create_subscription(topic, description, now_ms, filter_rules_of(rules))

        self._catalog(create)
        return name

    def create_access_rule(self, name: str, *rights: str, queue: str | None = None) -> str:
        """A rule with these rights; returns its connection string."""
        rule = rule_of(name, rights)
        self._catalog(lambda catalog: catalog.put_access_rule(rule, queue))
        return connection_string(self.port, rule, queue)

    def snapshot(self) -> Snapshot:
        """The catalog as it is now."""
        return self._catalog(lambda catalog: catalog.load())

    def health(self) -> tuple[int, str]:
        """Status and body of GET /health; status 0 where nobody answers."""
        url = f"http://{HOST}:{self.http_port}/health"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_until_healthy(self) -> None:
        """Wait until nothing is down. Any node may answer, so several answers are asked for."""
        self._until(
            lambda: all(_is_well(*self.health()) for _ in range(HEALTHY_ANSWERS)),
            "it did not become healthy",
        )

    # Steps of the above -----------------------------------------------------------------------

    def _catalog(self, use: Callable[[Catalog], T]) -> T:
        catalog = Catalog.open(self.data / CATALOG_NAME)
        try:
            return use(catalog)
        finally:
            catalog.close()

    def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Poll: another process gives no event."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise self._failed(otherwise)
            time.sleep(POLL_S)

    def _failed(self, what: str) -> BrokerFailed:
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        printed = "\n".join(self._printed)
        return BrokerFailed(f"{what}; it printed:\n{printed}\nand logged:\n{log[-4000:]}")


def _is_well(status: int, body: str) -> bool:
    return status == HTTPStatus.OK and json.loads(body)["status"] == "healthy"


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. They are free again for a moment before the broker binds."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
