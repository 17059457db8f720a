from __future__ import annotations

import pytest

from partibus.client.connection_string import read_connection_string
from partibus.client.tokens import SharedKey, SharedSignature

KEYED = "SharedAccessKeyName=Root;SharedAccessKey=a+b/c="


def test_a_namespace_is_reached_by_tls_on_its_port() -> None:
    found = read_connection_string(f"Endpoint=sb://ns.servicebus.windows.net/;{KEYED}")
    assert (found.host, found.port, found.is_plain) == ("ns.servicebus.windows.net", 5671, False)
    assert found.credentials == SharedKey("Root", "a+b/c=")
    assert found.entity is None


def test_an_emulator_is_reached_by_plain_tcp_on_the_port_it_names() -> None:
    found = read_connection_string(
        f"Endpoint=sb://localhost:7000;{KEYED};UseDevelopmentEmulator=true;"
    )
    assert (found.host, found.port, found.is_plain) == ("localhost", 7000, True)


def test_an_emulator_without_a_port_is_on_5672() -> None:
    found = read_connection_string(f"Endpoint=sb://localhost;{KEYED};UseDevelopmentEmulator=true")
    assert found.port == 5672


@pytest.mark.parametrize("value", ["True", "TRUE", "1", "false", ""])
def test_only_the_literal_true_turns_encryption_off(value: str) -> None:
    found = read_connection_string(f"Endpoint=sb://h;{KEYED};UseDevelopmentEmulator={value}")
    assert not found.is_plain


def test_keys_are_read_in_any_case_and_values_keep_their_equals_signs() -> None:
    found = read_connection_string("ENDPOINT=sb://h;sharedaccesskeyname=r;SHAREDACCESSKEY=k==")
    assert found.credentials == SharedKey("r", "k==")


def test_a_string_may_name_its_entity_and_bring_its_signature() -> None:
    text = "SharedAccessSignature sr=x&sig=y&se=1&skn=z"
    found = read_connection_string(f"HostName=h;EntityPath=orders;SharedAccessSignature={text}")
    assert found.entity == "orders"
    assert found.credentials == SharedSignature(text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (KEYED, "no Endpoint"),
        ("Endpoint=sb://h;SharedAccessKeyName=r", "belong together"),
        ("Endpoint=sb://h;SharedAccessKey=topsecret", "belong together"),
        (f"Endpoint=sb://h;{KEYED};SharedAccessSignature=topsecret", "not both"),
        ("Endpoint=sb://h;topsecret", "not Key=Value"),
        ("Endpoint=sb://h;SharedAccessKey=a;SharedAccessKey=topsecret", "twice"),
        ("Endpoint=sb:///;", "no host"),
    ],
)
def test_a_wrong_string_is_refused_without_telling_its_secret(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong) as refusal:
        read_connection_string(text)
    assert "topsecret" not in str(refusal.value)


def test_what_was_read_does_not_show_the_key() -> None:
    found = read_connection_string(
        "Endpoint=sb://h;SharedAccessKeyName=r;SharedAccessKey=topsecret"
    )
    assert "topsecret" not in repr(found)
