"""The client of the bulk doors, against a live broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from partibus.client import tokens
from partibus.client.tokens import SharedKey, Token
from partibus.pipeline import door as doors
from partibus.pipeline.door import Door, DoorRefused, DoorUnavailable, Range
from partibus.pipeline.options import Place

if TYPE_CHECKING:
    from tests.pipeline.conftest import Queue

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


def test_A4_a_long_query_renews_its_token_before_it_ends(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Token] = []
    original = SharedKey.token

    def noted(self: SharedKey, resource: str, now_ms: int) -> Token:
        made.append(original(self, resource, now_ms))
        return made[-1]

    # Whole seconds: the token lives for one to two of them, and is made anew a second before.
    monkeypatch.setattr(tokens, "TOKEN_LIFE_MS", 2000)
    monkeypatch.setattr(doors, "TOKEN_MARGIN_MS", 1000)
    monkeypatch.setattr(SharedKey, "token", noted)
    queue.send("a", key="k")
    end_s = time.monotonic() + 4
    with Door(Place(queue.broker.connection_string, queue.name)) as door:
        while time.monotonic() < end_s:
            # Each on the same connection, and checked by the broker.
            positions = door.positions()["fragments"]
            (fragment,) = (each["fragment"] for each in positions if each["last"])
            assert (
                sum(each.num_rows for each in door.messages(Range(fragment, 0, 1), ["body"])) == 1
            )
            time.sleep(0.05)
    assert len({each.text for each in made}) >= 3
    assert made[0].expires_ms < time.time() * 1000

    # Without another one, it would have been over.
    monkeypatch.setattr(Door, "_current_token", lambda _: made[0].text)
    with (
        Door(Place(queue.broker.connection_string, queue.name)) as door,
        pytest.raises(DoorRefused, match="401"),
    ):
        door.positions()


def test_A4_the_doors_are_reached_over_tls_with_the_certificate_that_is_trusted(
    queue: Queue,
) -> None:
    where = f"https://127.0.0.1:{queue.broker.port}"
    trusted = str(queue.broker.authority)
    connection = queue.broker.connection_string
    with Door(Place(connection, queue.name, where, trusted)) as door:
        assert len(door.positions()["fragments"]) == 16
    with (
        Door(Place(connection, queue.name, where), tries_max=1) as door,
        pytest.raises(DoorUnavailable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        door.positions()
