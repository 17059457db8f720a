from __future__ import annotations

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from partibus.broker.access import ALL_RIGHTS, AccessRule, Scope, check_token
from partibus.broker.errors import Unauthorized
from partibus.client.tokens import TOKEN_LIFE_MS, SharedKey, SharedSignature

NOW_MS = 1_700_000_000_000
RULE = AccessRule("a rule/ü", "k+y/=", "", ALL_RIGHTS)


@pytest.mark.parametrize("entity", ["orders", "a/b~c", "topic/Subscriptions/s"])
def test_the_broker_takes_our_tokens_until_they_end(entity: str) -> None:
    token = SharedKey(RULE.name, RULE.primary_key).token(f"sb://host/{entity}", NOW_MS)
    scopes = [Scope("", [RULE])]
    assert token.expires_ms == NOW_MS + TOKEN_LIFE_MS
    grant = check_token(token.text, entity.lower(), scopes, NOW_MS)
    assert grant.rights == ALL_RIGHTS
    with pytest.raises(Unauthorized, match="expired"):
        check_token(token.text, entity.lower(), scopes, token.expires_ms)


def test_a_token_has_the_signature_that_the_official_client_makes() -> None:
    ours = SharedKey("rule", "key").token("sb://host/orders", NOW_MS)
    theirs = generate_sas_token("sb://host/orders", "rule", "key", ours.expires_ms // 1000)
    assert _fields(ours.text) == _fields(theirs)


def test_a_signature_made_elsewhere_is_shown_as_it_is_until_it_ends() -> None:
    text = "SharedAccessSignature sr=x&sig=y&se=1700003600&skn=z"
    token = SharedSignature(text).token("sb://host/orders", NOW_MS)
    assert token.text == text
    assert token.expires_ms == 1_700_003_600_000
    assert not token.is_renewable


def test_neither_key_nor_token_is_shown() -> None:
    key = SharedKey("rule", "topsecret")
    assert "topsecret" not in repr(key)
    assert "sig=" not in repr(key.token("sb://host/orders", NOW_MS))


def _fields(token: str) -> dict[str, str]:
    scheme, _, rest = token.partition(" ")
    assert scheme == "SharedAccessSignature"
    return dict(part.split("=", 1) for part in rest.split("&"))
