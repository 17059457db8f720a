"""azure-messaging-servicebus for Java, unmodified, does here what its users do on Service Bus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from partibus.testing.serve import LiveBroker

HERE = Path(__file__).parent
PROMISES = (
    "send-and-complete",
    "a-message-without-id-gets-one",
    "a-batch-arrives-whole",
    "abandon-counts-a-delivery",
    "dead-letter-with-a-reason",
    "defer-and-receive-by-number",
    "schedule-arrives-on-time",
    "cancel-what-is-scheduled",
    "peek-leaves-messages-alone",
    "renew-a-lock",
    "a-transaction-commits-and-rolls-back",
    "a-session-keeps-order-and-state",
    "the-next-session-that-has-messages",
    "an-unknown-queue-is-not-found",
    "a-topic-copies-by-its-rules",
    "an-administrator-makes-changes-and-deletes",
)


TRUST_PASSWORD = "changeit"


@pytest.fixture(scope="module")
def kept(
    prepare: Callable[[list[str], Path], None],
    run_program: Callable[..., dict[str, str]],
    live_namespace: LiveBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    prepare(["mvn", "--quiet", "--batch-mode", "package"], HERE)
    trusted = str(tmp_path_factory.mktemp("java") / "trusted.p12")
    store = ["-keystore", trusted, "-storepass", TRUST_PASSWORD]
    authority = ["-file", str(live_namespace.authority)]
    prepare(["keytool", "-importcert", "-noprompt", "-alias", "a", *authority, *store], HERE)
    trust = [
        f"-Djavax.net.ssl.trustStore={trusted}",
        f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD}",
    ]
    command = ["java", *trust, "-cp", "target/conformance.jar:target/dependency/*"]
    return run_program("java", [*command, "conformance.Conformance"], HERE)


@pytest.mark.parametrize("kind", ["conventional", "partitioned"])
@pytest.mark.parametrize("promise", PROMISES)
def test_A3_the_java_client_finds(kept: dict[str, str], kind: str, promise: str) -> None:
    assert kept.get(f"{kind}/{promise}", "it was not tried") == ""
