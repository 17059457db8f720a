"""What is put together comes apart again; what is no message is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.wire.errors import DecodeError
from partibus.wire.message_parts import Properties, data, join, split
from partibus.wire.values import Timestamp

texts = st.none() | st.text(max_size=20)


@given(
    message_id=texts,
    subject=texts,
    session=texts,
    content_type=st.none() | st.text("abc/", max_size=9),
    ttl_ms=st.none() | st.integers(1, 10**12),
    annotations=st.dictionaries(st.text("x-opt", min_size=1), st.integers(0, 9), max_size=3),
    application=st.dictionaries(st.text(max_size=5), st.booleans() | st.text(max_size=5)),
    body=st.binary(max_size=300),
)
def test_parts_survive_the_way_there_and_back(
    message_id: str | None,
    subject: str | None,
    session: str | None,
    content_type: str | None,
    ttl_ms: int | None,
    annotations: dict[str, object],
    application: dict[str, object],
    body: bytes,
) -> None:
    properties = Properties(
        message_id=message_id, subject=subject, session_id=session, content_type=content_type
    )
    parts = split(
        join(
            properties,
            data(body),
            ttl_ms=ttl_ms,
            now_ms=5,
            annotations=annotations,
            application=application,
        )
    )
    assert parts.data == [body]
    assert parts.property(0) == message_id
    assert parts.property(3) == subject
    assert parts.property(6) == content_type
    assert parts.property(10) == session
    assert parts.annotations == annotations
    assert parts.application == application
    if ttl_ms is not None:
        assert parts.header_field(2) == min(ttl_ms, 0xFFFFFFFF)
        assert parts.property(8) == Timestamp(5 + ttl_ms)


@pytest.mark.parametrize(
    "payload",
    [b"\x00", b"\x00\x53\x73", b"\x00\x53\x70\x41", b"\x00\x53\x75\xa0\x05ab", b"\x00\x53\x74\x45"],
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        split(payload)
