"""Tokens made by the vendor's own function, and tokens made to deceive."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from hmac import HMAC
from urllib.parse import quote, quote_plus

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from partibus.broker.access import (
    ALL_RIGHTS,
    AccessRule,
    Grant,
    Right,
    Scope,
    TokenMalformed,
    belongs,
    check_access_rule,
    check_key,
    check_token,
    resource_path,
    still_stands,
)
from partibus.broker.errors import Unauthorized
from partibus.broker.properties import InvalidDescription

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
LATER_S = NOW_S + 3600

ROOT = AccessRule(
    "RootManageSharedAccessKey", "cm9vdCBwcmltYXJ5", "cm9vdCBzZWNvbmRhcnk=", ALL_RIGHTS
)
SENDER = AccessRule("sender", "c2VuZGVy", "", Right.SEND)
ODD = AccessRule("odd name/+&", "b2Rk", "", Right.LISTEN)
SCOPES = [Scope("", [ROOT, ODD]), Scope("q", [SENDER])]


def token(
    uri: str = "sb://host/q",
    rule: AccessRule = ROOT,
    key: str | None = None,
    expires_s: int = LATER_S,
) -> str:
    made: str = generate_sas_token(uri, rule.name, key or rule.primary_key, expires_s)
    return made


def signed(raw_resource: str, rule: AccessRule, expiry: str = str(LATER_S)) -> str:
    """A token over exactly this resource text."""
    text = f"{raw_resource}\n{expiry}".encode()
    signature = b64encode(HMAC(rule.primary_key.encode(), text, sha256).digest()).decode()
    return (
        f"SharedAccessSignature sr={raw_resource}&sig={quote_plus(signature)}"
        f"&se={expiry}&skn={rule.name}"
    )


def check(text: str, path: str = "q") -> Grant:
    return check_token(text, path, SCOPES, NOW_MS)


def test_a_token_of_the_vendors_client_is_good_until_it_ends() -> None:
    assert check(token()) == Grant("q", ALL_RIGHTS, LATER_S * 1000)


def test_either_key_of_a_rule_signs() -> None:
    assert check(token(key=ROOT.secondary_key)).rights == ALL_RIGHTS


def test_a_rule_without_a_secondary_key_is_not_opened_by_the_empty_key() -> None:
    forged = generate_sas_token("sb://host/q", SENDER.name, "", LATER_S)
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        check(forged)
    assert check_key(SENDER.name, "", [SENDER]) is None


def test_a_rule_of_the_entity_opens_the_entity_with_its_rights_only() -> None:
    grant = check(token(rule=SENDER))
    assert grant.allows("q", Right.SEND, NOW_MS)
    assert not grant.allows("q", Right.LISTEN, NOW_MS)


def test_a_token_ends_at_its_second() -> None:
    with pytest.raises(Unauthorized, match="ExpiredToken"):
        check(token(expires_s=NOW_S))
    assert check(token(expires_s=NOW_S + 1)).allows("q", Right.SEND, NOW_MS + 999)
    assert not check(token(expires_s=NOW_S + 1)).allows("q", Right.SEND, NOW_MS + 1000)


def test_a_foreign_key_opens_nothing() -> None:
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        check(token(key="Zm9yZWlnbg=="))


def test_an_unknown_rule_reads_like_a_bad_signature() -> None:
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        check(token(rule=AccessRule("nobody", ROOT.primary_key, "", ALL_RIGHTS)))


def test_the_key_of_one_queue_does_not_open_another() -> None:
    with pytest.raises(Unauthorized):
        check(token("sb://host/q2", rule=SENDER), path="q2")


def test_a_token_for_q_is_none_for_q2_nor_for_a_path_that_only_begins_alike() -> None:
    for other in ("q2", "q-other", "qq/q"):
        with pytest.raises(Unauthorized, match="InvalidAudience"):
            check(token("sb://host/q"), path=other)


def test_the_key_of_an_entity_cannot_sign_for_the_whole_namespace() -> None:
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        check(token("sb://host/", rule=SENDER))


def test_a_token_for_the_namespace_covers_every_entity() -> None:
    for uri in ("sb://host", "sb://host/", "https://host:443/", "amqps://HOST/"):
        assert check(token(uri), path="any/queue").path == "any/queue"


def test_a_token_for_an_entity_covers_what_belongs_to_it() -> None:
    grant = check(token("sb://host/q"))
    for part in ("q", "q/$management", "q/$deadletterqueue", "q/subscriptions/s"):
        assert grant.allows(part, Right.LISTEN, NOW_MS)
    assert not grant.allows("q/other", Right.LISTEN, NOW_MS)
    assert not grant.allows("", Right.LISTEN, NOW_MS)


def test_the_signature_is_over_the_resource_as_it_was_sent() -> None:
    upper, lower = "sb%3A%2F%2Fhost%2Fq", "sb%3a%2f%2fhost%2fq"
    for raw in (upper, lower, "sb://host/q"):
        assert check(signed(raw, ROOT)).path == "q"
    swapped = signed(upper, ROOT).replace(upper, lower)
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        check(swapped)


def test_a_resource_encoded_twice_means_the_same_path() -> None:
    spaced = quote_plus("sb://host/" + quote("a b"))
    assert check(signed(spaced, ROOT), path="a b").path == "a b"
    whole = quote_plus(quote_plus("sb://host/q"))
    with pytest.raises(Unauthorized, match="InvalidAudience"):
        check(signed(whole, ROOT), path="q2")


def test_the_name_of_a_rule_may_be_encoded_once_or_twice() -> None:
    assert check(token(rule=ODD)).rights == Right.LISTEN
    once = signed("sb%3A%2F%2Fhost%2Fq", ODD).replace(
        f"skn={ODD.name}", f"skn={quote_plus(ODD.name).replace('+', '%20')}"
    )
    assert check(once).rights == Right.LISTEN


def test_the_fields_may_come_in_any_order() -> None:
    scheme, _, fields = token().partition(" ")
    assert check(f"{scheme} {'&'.join(reversed(fields.split('&')))}").path == "q"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SharedAccessSignature",
        "SharedAccessSignature ",
        "eyJhbGciOiJub25lIn0.e30.",
        "sharedaccesssignature sr=a&sig=b&se=1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1",
        "SharedAccessSignature sr=a&sig=b&skn=c",
        "SharedAccessSignature sr=a&sr=b&sig=b&se=1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=-1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1e9&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=٣&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=" + "9" * 13 + "&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=&skn=c",
        "SharedAccessSignature sr=a;sig=b;se=1;skn=c",
        "SharedAccessSignature sr=" + "a" * 10_000 + "&sig=b&se=1&skn=c",
    ],
)
def test_what_is_no_token_is_malformed(text: str) -> None:
    with pytest.raises(TokenMalformed):
        check(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("q", "q"),
        ("/Q", "q"),
        ("amqps://host/Q", "q"),
        ("amqps://host:5671/q/", "q"),
        ("sb://host", ""),
        ("sb://host/", ""),
        ("amqp://[::1]:5672/a/b", "a/b"),
        (
            "sb://host/topic/Subscriptions/S/$DeadLetterQueue",
            "topic/subscriptions/s/$deadletterqueue",
        ),
        ("sb://host/a%20b", "a b"),
        ("a/b://c", "a/b://c"),
        ("https://host:443/q/messages?api-version=2024-05", "q/messages"),
    ],
)
def test_addresses_in_all_spellings_mean_one_path(text: str, path: str) -> None:
    assert resource_path(text) == path


def test_a_queue_with_a_longer_name_is_no_part_of_the_shorter() -> None:
    assert not belongs("a/b", "a")
    assert belongs("a/$management", "a")
    assert not belongs("ab", "a")


def test_a_rules_name_and_key_open_the_namespace() -> None:
    assert check_key(ROOT.name, ROOT.secondary_key, [ROOT]) == Grant("", ALL_RIGHTS)
    assert check_key(ROOT.name, "wrong", [ROOT]) is None
    assert check_key("other", ROOT.primary_key, [ROOT]) is None


def test_A4_a_grant_stands_while_its_rule_has_its_key_and_its_rights() -> None:
    grant = check(token(key=ROOT.secondary_key))
    assert still_stands(grant, SCOPES)
    rotated = AccessRule(ROOT.name, "bmV3", ROOT.secondary_key, ALL_RIGHTS)
    assert still_stands(grant, [Scope("", [rotated])])
    for other in (
        AccessRule(ROOT.name, ROOT.primary_key, "bmV3", ALL_RIGHTS),
        AccessRule(ROOT.name, ROOT.primary_key, ROOT.secondary_key, Right.SEND),
        AccessRule("other", ROOT.primary_key, ROOT.secondary_key, ALL_RIGHTS),
    ):
        assert not still_stands(grant, [Scope("", [other])])
    assert not still_stands(grant, [Scope("q", [ROOT])])


def test_A4_keys_are_in_no_text_about_a_grant() -> None:
    assert ROOT.primary_key not in repr(check(token()))


@pytest.mark.parametrize(
    "rule",
    [
        AccessRule("", "k", "", ALL_RIGHTS),
        AccessRule("a/b", "k", "", ALL_RIGHTS),
        AccessRule("x" * 257, "k", "", ALL_RIGHTS),
        AccessRule("name", "k", "", Right(0)),
        AccessRule("name", "", "k", ALL_RIGHTS),
    ],
)
def test_A4_what_cannot_be_a_rule_is_refused(rule: AccessRule) -> None:
    with pytest.raises(InvalidDescription):
        check_access_rule(rule)
