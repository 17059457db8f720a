"""What a connection holds, and for how long."""

from __future__ import annotations

from partibus.broker.access import ALL_RIGHTS, Grant, Right
from partibus.gateway.claims import GRANTS_MAX, Claims


def test_a_grant_is_good_for_the_parts_of_its_entity_until_it_ends() -> None:
    claims = Claims(anonymous=False)
    assert claims.put(Grant("t", Right.LISTEN, 1000), 0)
    assert claims.allows("t/subscriptions/s", Right.LISTEN, 999)
    assert not claims.allows("t/subscriptions/s", Right.SEND, 999)
    assert not claims.allows("t/other", Right.LISTEN, 999)
    assert not claims.allows("t", Right.LISTEN, 1000)


def test_a_later_grant_for_a_path_takes_the_place_of_the_earlier() -> None:
    claims = Claims(anonymous=False)
    claims.put(Grant("q", ALL_RIGHTS, 1000), 0)
    claims.put(Grant("q", Right.SEND, 2000), 0)
    assert not claims.allows("q", Right.LISTEN, 1)
    assert claims.allows("q", Right.SEND, 1999)
    assert claims.next_end_ms() == 2000


def test_there_is_room_for_so_many_and_ended_ones_make_room() -> None:
    claims = Claims(anonymous=False)
    for number in range(GRANTS_MAX):
        assert claims.put(Grant(f"q{number}", ALL_RIGHTS, 1000), 0)
    assert not claims.put(Grant("more", ALL_RIGHTS, 2000), 999)
    assert claims.put(Grant("q0", ALL_RIGHTS, 2000), 999)
    assert claims.put(Grant("more", ALL_RIGHTS, 2000), 1000)


def test_who_has_shown_a_token_is_not_anonymous_any_more() -> None:
    claims = Claims(anonymous=True)
    assert claims.allows("q", Right.MANAGE, 0)
    claims.put(Grant("q", Right.SEND, 1000), 0)
    assert not claims.allows("q", Right.LISTEN, 0)
    claims.forget_ended(1000)
    assert not claims.allows("q", Right.SEND, 1000)
    assert claims.established


def test_A4_what_is_revoked_is_dropped_and_nothing_else() -> None:
    claims = Claims(anonymous=False)
    claims.put(Grant("q", Right.SEND, 1000), 0)
    claims.put(Grant("p", Right.SEND, 1000), 0)
    claims.admit(Grant("", Right.LISTEN))
    assert not claims.revoke(lambda grant: False)
    assert claims.revoke(lambda grant: grant.path != "p")
    assert claims.allows("p", Right.SEND, 0)
    assert not claims.allows("q", Right.SEND, 0)
    assert not claims.allows("q", Right.LISTEN, 0)


def test_a_key_grants_the_whole_connection_without_end() -> None:
    claims = Claims(anonymous=False)
    claims.admit(Grant("", Right.SEND))
    assert claims.allows("any/queue", Right.SEND, 10**15)
    assert claims.next_end_ms() is None
