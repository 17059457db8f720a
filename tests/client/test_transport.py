"""Sockets: encryption and whom we trust, and what a slow one does."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_service import ScriptedService

from partibus.client import AsyncClient, Client, Message, RetryPolicy, Unauthorized

QUEUE = "orders"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, for 127.0.0.1, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "service.pem"
    names = ["-subj", "/CN=service", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names,
         "-keyout", path, "-out", path.with_suffix(".crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture
def encrypted(certificate: Path) -> Iterator[ScriptedService]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ScriptedService(context) as service:
        yield service


def string_of(service: ScriptedService) -> str:
    return service.connection_string.replace(";UseDevelopmentEmulator=true", "")


def test_messages_go_over_tls_to_who_is_trusted(
    encrypted: ScriptedService, certificate: Path
) -> None:
    context = ssl.create_default_context(cafile=certificate)
    with Client.from_connection_string(string_of(encrypted), ssl_context=context) as client:
        client.sender(QUEUE).send(Message(b"x" * 200_000))
    (transfer,) = encrypted.transfers
    assert len(transfer.payload) > 200_000


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    encrypted: ScriptedService,
) -> None:
    retry = RetryPolicy(delay_s=30)
    with (
        Client.from_connection_string(string_of(encrypted), retry=retry) as client,
        pytest.raises(Unauthorized, match="certificate"),
    ):
        client.sender(QUEUE).send(Message("x"))
    assert encrypted.transfers == []


def test_a_certificate_for_another_host_is_refused(
    encrypted: ScriptedService, certificate: Path
) -> None:
    context = ssl.create_default_context(cafile=certificate)
    text = string_of(encrypted).replace("127.0.0.1", "localhost")
    with (
        Client.from_connection_string(text, ssl_context=context) as client,
        pytest.raises(Unauthorized, match="certificate"),
    ):
        client.sender(QUEUE).send(Message("x"))


def test_much_more_than_a_socket_holds_arrives_in_order(service: ScriptedService) -> None:
    count, size = 400, 100_000

    async def main() -> None:
        async with AsyncClient.from_connection_string(service.connection_string) as client:
            bodies = [b"%03d" % n + b"x" * size for n in range(count)]
            await client.sender(QUEUE).send([Message(body) for body in bodies])

    asyncio.run(main())
    found = [each.payload[-size - 3 : -size] for each in service.transfers]
    assert found == [b"%03d" % n for n in range(count)]
