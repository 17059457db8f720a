"""The command line, as a person or a script meets it: real processes, real exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partibus import __version__
from partibus.runtime.authority import make_certificates

CONFIG = """{
  // A queue of each kind.
  "UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [
    {"Name": "plain"},
    {"Name": "spread", "Properties": {"EnablePartitioning": true}},
  ], "Topics": [{"Name": "t"}]}]}
}"""


def partibus(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "partibus", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(CONFIG)
    return path


class Broker:
    """`partibus serve` in a process of its own, once it has said that it is ready."""

    def __init__(self, *arguments: str, place: Path | None = None) -> None:
        # Where it may write by mistake: its current, home and temporary directories.
        mistakes = {"HOME": str(place), "TMPDIR": str(place)} if place else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "partibus", "serve", "--port", "0", "--http-port", "0",
             "--nodes", "2", "--stores", "2", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=place,
            env=os.environ | mistakes,
        )  # fmt: skip
        assert self.process.stdout
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if line == "ready\n":
                return
        raise AssertionError(f"never ready: {self.said}")

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.said)
        assert match, self.said
        return match[1]

    def health(self) -> dict[str, object]:
        url = self.found(r"health: +(\S+)")
        with urllib.request.urlopen(url, timeout=10) as response:
            answer: dict[str, object] = json.load(response)
        return answer

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(20)
        assert self.process.stdout
        self.process.stdout.close()
        return code


@pytest.fixture
def start() -> Iterator[Callable[..., Broker]]:
    """Starts brokers with the arguments a test wants, and leaves none behind."""
    with contextlib.ExitStack() as stack:

        def started(*arguments: str, place: Path | None = None) -> Broker:
            broker = Broker(*arguments, place=place)
            stack.callback(broker.stop)
            return broker

        yield started


@pytest.fixture
def broker(tmp_path: Path, config: Path) -> Iterator[Broker]:
    broker = Broker("--data", str(tmp_path / "data"), "--config", str(config))
    yield broker
    broker.stop()


def test_serve_says_where_everything_is_answers_and_ends_in_order(
    broker: Broker, tmp_path: Path
) -> None:
    assert str(tmp_path / "data") in broker.said
    assert "not served yet" not in broker.said
    port = broker.found(r"connection string: Endpoint=sb://127\.0\.0\.1:(\d+);")
    with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as client:
        client.sendall(b"AMQP\x03\x01\x00\x00")
        assert client.recv(8) == b"AMQP\x03\x01\x00\x00"
    assert broker.health()["status"] == "healthy"
    assert broker.stop() == 0


def test_A4_the_port_speaks_http_and_tls_too_for_who_trusts_the_authority(
    broker: Broker, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    shown = partibus("cert", "show", "--data", data)
    assert "localhost" in shown.stdout
    exported = tmp_path / "authority.pem"
    assert partibus("cert", "export", str(exported), "--data", data).returncode == 0
    port = broker.found(r"the same in TLS: +Endpoint=sb://127\.0\.0\.1:(\d+);")
    trust = ssl.create_default_context(cafile=exported)
    for scheme, context in (("http", None), ("https", trust)):
        url = f"{scheme}://127.0.0.1:{port}/health"
        with urllib.request.urlopen(url, timeout=10, context=context) as response:
            assert response.status == 200


def test_A4_env_prints_what_a_shell_needs(broker: Broker, tmp_path: Path) -> None:
    printed = partibus("env", "--data", str(tmp_path / "data"))
    script = f'{printed.stdout}\necho "$SERVICEBUS_CONNECTION_STRING"; cat "$SSL_CERT_FILE"'
    run = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(broker.found("connection string: (Endpoint=.*)"))
    assert "BEGIN CERTIFICATE" in run.stdout
    assert broker.stop() == 0
    gone = partibus("env", "--data", str(tmp_path / "data"))
    assert (gone.returncode, gone.stdout) == (5, "")
    assert "no broker serves" in gone.stderr


def shown_certificate(port: int, trust: ssl.SSLContext) -> bytes:
    stream = socket.create_connection(("127.0.0.1", port), timeout=10)
    with trust.wrap_socket(stream, server_hostname="127.0.0.1") as secure:
        shown = secure.getpeercert(binary_form=True)
        assert shown
        return shown


def test_A4_an_own_certificate_is_shown_on_every_port_and_renewed_while_the_broker_runs(
    tmp_path: Path, start: Callable[..., Broker]
) -> None:
    now_ms = int(time.time() * 1000)
    own = make_certificates(tmp_path, [], now_ms)
    trust = ssl.create_default_context(cafile=own.with_name("authority.pem"))
    broker = start(
        *("--data", str(tmp_path / "data"), "--tls-cert", str(own)),
        *("--tls-port", "0", "--https-port", "0"),
    )
    one = int(broker.found(r"address: +amqp://127\.0\.0\.1:(\d+)"))
    tls_only = [
        int(broker.found(rf"TLS only: +{scheme}://127\.0\.0\.1:(\d+)"))
        for scheme in ("amqps", "https")
    ]
    (before,) = {shown_certificate(port, trust) for port in (one, *tls_only)}
    for port in tls_only:
        url = f"https://127.0.0.1:{port}/health"
        with urllib.request.urlopen(url, timeout=10, context=trust) as response:
            assert response.status == 200
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"AMQP\x03\x01\x00\x00")
            with contextlib.suppress(ConnectionResetError):
                assert plain.recv(8) == b""
    make_certificates(tmp_path, ["another.name"], now_ms)
    deadline_s = time.monotonic() + 30
    # Another process gives no event. Several looks: any node may answer.
    while before in {shown_certificate(one, trust) for _ in range(4)}:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    assert not (tmp_path / "data" / "tls").exists()
    assert broker.stop() == 0


def test_A4_nothing_is_written_outside_the_data_directory(
    tmp_path: Path, config: Path, start: Callable[..., Broker]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    broker = start("--data", str(tmp_path / "data"), "--config", str(config), place=place)
    assert broker.health()["status"] == "healthy"
    assert broker.stop() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"data", "place", "Config.json"}
    assert not list(place.iterdir())


def test_a_directory_in_use_is_refused(broker: Broker, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    second = partibus("serve", "--data", data, "--port", "0", "--http-port", "0")
    assert second.returncode == 4
    assert f"in use by process {broker.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_namespace_keeps_its_keys_and_queues_over_a_restart(tmp_path: Path, config: Path) -> None:
    data = str(tmp_path / "data")
    first = Broker("--data", data, "--config", str(config))
    assert first.stop(signal.SIGINT) == 0
    second = Broker("--data", data)
    key = r"SharedAccessKey=([^;]+);"
    assert second.found(key) == first.found(key)
    assert second.stop() == 0


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = partibus("serve", "--data", str(tmp_path / "data"), "--port", port)
    assert refused.returncode == 6
    assert refused.stderr.startswith(f"partibus: port {port} of 127.0.0.1 is in use")
    assert not (tmp_path / "data").exists()


def test_a_wrong_configuration_is_refused_with_the_path_of_its_key(config: Path) -> None:
    config.write_text(CONFIG.replace('"EnablePartitioning": true', '"LockDuration": "PT1S"'))
    data = str(config.parent / "data")
    ports = ["--port", "0", "--http-port", "0"]
    validate = ["config", "validate", str(config)]
    for command in (validate, ["serve", "--config", str(config), "--data", data, *ports]):
        refused = partibus(*command)
        assert refused.returncode == 3
        assert refused.stderr == (
            "partibus: UserConfig.Namespaces[0].Queues[1].Properties.LockDuration: 'PT1S' is not "
            "allowed; allowed: an ISO 8601 duration, PT5S to PT5M\n"
        )


def test_settings_are_taken_from_the_environment(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.json")
    refused = partibus("serve", PARTIBUS_CONFIG=missing, PARTIBUS_DATA=str(tmp_path / "data"))
    assert refused.returncode == 3
    assert missing in refused.stderr
    directories = os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c")])
    refused = partibus(
        "serve", "--port", "0", "--http-port", "0",
        PARTIBUS_STORES="2", PARTIBUS_STORE_DIR=directories, PARTIBUS_DATA=str(tmp_path / "data"),
    )  # fmt: skip
    assert refused.returncode == 5
    assert "3 store directories are too many for 2 stores" in refused.stderr


def test_a_good_configuration_is_found_valid(config: Path) -> None:
    valid = partibus("config", "validate", str(config))
    assert valid.returncode == 0
    assert "namespace ns, 2 queues" in valid.stdout
    assert "1 topics" in valid.stdout


def test_the_version_is_printed() -> None:
    assert partibus("version").stdout == f"partibus {__version__}\n"


@pytest.mark.parametrize("arguments", [["serve", "--port", "x"], ["nonsense"], ["node", "{}"]])
def test_a_wrong_use_is_explained(arguments: list[str]) -> None:
    wrong = partibus(*arguments)
    assert wrong.returncode == 2
    assert "Error: " in wrong.stderr
