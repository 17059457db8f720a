"""Every listing of the page runs as it stands, and does what the page says (T1 to T4, U1)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partibus.client import Client
from partibus.testing.namespace import Namespace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MOMENT_S = 0.3
PATIENCE_S = 20.0

Run = Callable[..., str]


@pytest.fixture
def namespace(servicebus_namespace: Namespace) -> Namespace:
    servicebus_namespace.create_queue("orders", enable_partitioning=True)
    for name, partitioned in (("conversations", True), ("plain", False)):
        servicebus_namespace.create_queue(
            name, enable_partitioning=partitioned, requires_session=True
        )
    return servicebus_namespace


@pytest.fixture
def client(namespace: Namespace) -> Iterator[Client]:
    with Client.from_connection_string(namespace.connection_string) as client:
        yield client


@pytest.fixture
def run(namespace: Namespace, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an example; what it says."""

    def run(name: str, *queue: str) -> str:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main(namespace.connection_string, *queue)
        return capsys.readouterr().out

    return run


def bodies(client: Client, queue: str = "orders") -> list[str]:
    with client.receiver(queue) as receiver:
        found: list[str] = []
        while messages := receiver.receive(10, timeout=MOMENT_S):
            found += [message.text for message in messages]
        return found


def session_bodies(client: Client, queue: str, session_id: str) -> list[str]:
    with client.accept_session(queue, session_id, timeout=PATIENCE_S) as session:
        return [message.text for message in session.receive(10, timeout=MOMENT_S)]


def test_send_with_a_partition_key(run: Run, client: Client) -> None:
    lines = run("send_with_partition_key").splitlines()
    kept = [line for line in lines if "no key" not in line]
    assert [line.partition(": ")[2] for line in kept] == ["ordered", "paid", "shipped"]
    assert len({line.partition(": ")[0] for line in kept}) == 1
    assert len(lines) == 4
    assert bodies(client) == []


def test_a_transaction_with_a_partition_key(run: Run, client: Client) -> None:
    assert run("transaction_with_partition_key") == "committed\n"
    assert bodies(client) == ["This is a message", "This is another"]


def test_a_transaction_with_a_session_id(run: Run, client: Client) -> None:
    assert run("transaction_with_session_id") == "committed\n"
    assert session_bodies(client, "conversations", "mySession") == ["This is a message"]


@pytest.mark.parametrize(
    "name",
    [
        "refused_transaction_without_key",
        "refused_transaction_with_different_keys",
        "refused_session_id_and_partition_key",
    ],
)
def test_a_refused_send_leaves_nothing_behind(run: Run, client: Client, name: str) -> None:
    assert run(name).startswith("refused: ")
    assert bodies(client) == []


def test_two_sessions_in_a_transaction_are_refused_where_the_queue_is_partitioned(
    run: Run, client: Client
) -> None:
    assert run("refused_transaction_with_two_sessions").startswith("refused: ")
    assert session_bodies(client, "conversations", "mySession") == []


def test_two_sessions_in_a_transaction_are_allowed_where_it_is_not(
    run: Run, client: Client
) -> None:
    assert run("refused_transaction_with_two_sessions", "plain").startswith("committed")
    assert session_bodies(client, "plain", "mySession") == ["This is a message"]
    assert session_bodies(client, "plain", "anotherSession") == ["This is another"]


def test_S5_orders_for_the_pipeline_are_sent(run: Run, client: Client) -> None:
    run("pipeline/send_orders", "3", "0")
    orders = [json.loads(each) for each in bodies(client)]
    assert sorted(order["number"] for order in orders) == [0, 1, 2]


def test_every_example_is_run_here_and_listed_in_the_readme() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    here = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"`{path.name}`" in listed
        assert f'"{path.stem}"' in here
