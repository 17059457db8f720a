"""The brokers under test, each started as a user would start it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks import processes
from benchmarks.load.plan import Endpoint
from benchmarks.rabbitmq import peer

CONVENTIONAL = "conventional"
PARTITIONED = "partitioned"
READY_SECONDS = 60
STOP_SECONDS = 60
_HERE = Path(__file__).resolve().parent
_KEY_NAME = re.compile(r"SharedAccessKeyName=([^;\s]+)")
_KEY = re.compile(r"SharedAccessKey=([^;\s]+)")


class Subject(ABC):
    """A running broker with a conventional queue and, if it knows them, a partitioned one."""

    name: str
    partitions: bool

    @abstractmethod
    def endpoint(self, queue: str) -> Endpoint: ...

    @abstractmethod
    def pids(self) -> list[int]: ...

    @abstractmethod
    def stop(self) -> None: ...

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.pids())


class RabbitMQ(Subject):
    """RabbitMQ 4.x with a quorum queue."""

    partitions = False

    def __init__(self) -> None:
        version = peer.install().partition("-")[0]
        self.name = f"RabbitMQ {version} quorum"
        self._peer = peer.start([CONVENTIONAL])

    def endpoint(self, queue: str) -> Endpoint:
        return Endpoint(self._peer.port, f"/queues/{queue}", rcv_settle_mode=0)

    def pids(self) -> list[int]:
        return self._peer.pids()

    def cpu_seconds(self) -> float:
        return self._peer.cpu_seconds()

    def stop(self) -> None:
        peer.stop()


class Partibus(Subject):
    """`partibus serve` from the environment of an interpreter, on data of its own."""

    partitions = True

    def __init__(self, name: str, python: Path, nodes: int) -> None:
        self.name = name
        self.nodes = nodes
        self.data = Path(tempfile.mkdtemp(prefix=".data-", dir=_HERE))
        self._command = python.parent / "partibus"
        self._config = self.data / "config.json"
        self._config.write_text(json.dumps(_configuration()))
        self._log = self.data / "log"
        self.key_name = self.key = self.connection_string = ""
        self.start()

    def start(self) -> float:
        """Start it; the seconds until it said that it is ready."""
        self.port, http_port = _free_ports(2)
        options = {
            "nodes": self.nodes,
            "data": self.data / "namespace",
            "config": self._config,
            "port": self.port,
            "http-port": http_port,
        }
        argv = [str(self._command), "serve"]
        for option, value in options.items():
            argv += [f"--{option}", str(value)]
        with self._log.open("wb") as log:
            begun = time.monotonic()
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while not re.search(r"^ready\b", text := self._log.read_text(), re.MULTILINE):
            if self._process.poll() is not None or time.monotonic() > begun + READY_SECONDS:
                self._process.kill()
                raise RuntimeError(f"{self.name} did not become ready:\n{text[-3000:]}")
            time.sleep(0.005)
        seconds = time.monotonic() - begun
        time.sleep(0.2)
        self._read_connection_string()
        return seconds

    def _read_connection_string(self) -> None:
        text = self._log.read_text()
        found = re.search(r"Endpoint=\S+", text)
        name, key = _KEY_NAME.search(text), _KEY.search(text)
        if not found or not name or not key:
            raise RuntimeError(f"{self.name} printed no connection string:\n{text[-3000:]}")
        self.connection_string = found.group()
        self.key_name, self.key = name.group(1), key.group(1)

    def endpoint(self, queue: str) -> Endpoint:
        return Endpoint(self.port, queue, key_name=self.key_name, key=self.key)

    def pids(self) -> list[int]:
        return processes.tree(self._process.pid)

    def terminate(self) -> None:
        """End it as a user would, and wait for its end."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End all its processes at once, as a crash would; the supervisor first."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self.terminate()
        shutil.rmtree(self.data, ignore_errors=True)


def _configuration() -> dict[str, object]:
    queues = [
        {
            "Name": name,
            "Properties": {
                "EnablePartitioning": name == PARTITIONED,
                "MaxSizeInMegabytes": 5120,
                "LockDuration": "PT5M",
            },
        }
        for name in (CONVENTIONAL, PARTITIONED)
    ]
    namespace = {"Name": "bench", "Queues": queues}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
