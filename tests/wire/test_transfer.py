"""Promises of the fast frames: they agree with the generic codec and refuse what is damaged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from partibus.wire.codec import decode
from partibus.wire.composites import compose, composed, decode_composite
from partibus.wire.errors import DecodeError
from partibus.wire.performatives import ACCEPTED, Disposition, TransactionalState, Transfer
from partibus.wire.transfer import (
    DispositionFrame,
    TransferFrame,
    TransferWriter,
    transfer_frame,
    write_disposition,
)

UINTS = st.integers(0, 0xFFFFFFFF)
TRANSFERS = st.builds(
    Transfer,
    handle=UINTS,
    delivery_id=st.none() | UINTS,
    delivery_tag=st.none() | st.binary(max_size=32),
    message_format=st.none() | UINTS,
    settled=st.none() | st.booleans(),
    more=st.booleans(),
    rcv_settle_mode=st.none() | st.integers(0, 1),
    state=st.none() | st.just(ACCEPTED) | st.builds(TransactionalState, st.binary(max_size=16)),
    aborted=st.booleans(),
    batchable=st.booleans(),
)
DISPOSITIONS = st.builds(
    Disposition,
    role=st.booleans(),
    first=UINTS,
    last=st.none() | UINTS,
    settled=st.booleans(),
    state=st.none() | st.just(ACCEPTED),
)


@given(TRANSFERS, st.binary(max_size=30))
def test_a_transfer_is_read_as_the_generic_codec_reads_it(
    transfer: Transfer, payload: bytes
) -> None:
    data = compose(transfer) + payload
    frame = TransferFrame()
    frame.read(data, 3, len(data))
    assert frame.handle == transfer.handle
    assert frame.delivery_id == (-1 if transfer.delivery_id is None else transfer.delivery_id)
    assert frame.tag == (transfer.delivery_tag or b"")
    assert frame.message_format == (
        -1 if transfer.message_format is None else transfer.message_format
    )
    assert frame.settled == bool(transfer.settled)
    assert (frame.more, frame.aborted) == (transfer.more, transfer.aborted)
    assert frame.state == (b"" if transfer.state is None else compose(transfer.state))
    assert data[frame.payload :] == payload


@given(DISPOSITIONS)
def test_a_disposition_is_read_as_the_generic_codec_reads_it(disposition: Disposition) -> None:
    data = compose(disposition)
    frame = DispositionFrame()
    frame.read(data, 3, len(data))
    assert (frame.role, frame.first, frame.settled) == (
        disposition.role,
        disposition.first,
        disposition.settled,
    )
    assert frame.last == (disposition.first if disposition.last is None else disposition.last)
    assert frame.state == (b"" if disposition.state is None else compose(disposition.state))


@given(UINTS, UINTS, st.binary(max_size=32), st.booleans(), st.binary(max_size=50))
def test_a_written_transfer_says_what_it_was_given(
    handle: int, delivery_id: int, tag: bytes, settled: bool, payload: bytes
) -> None:
    out = BytesWriter()
    TransferWriter(40_000, handle).write(out, delivery_id, tag, payload, settled)
    data = out.getvalue()
    assert data[:8] == len(data).to_bytes(4, "big") + b"\x02\x00" + (40_000).to_bytes(2, "big")
    value, end = decode_composite(data, 8, len(data))
    assert value == Transfer(
        handle, delivery_id, tag, message_format=0, settled=settled, batchable=True
    )
    assert data[end:] == payload


@given(UINTS, UINTS, st.binary(max_size=32), UINTS, st.booleans(), st.booleans())
def test_a_written_part_of_a_message_says_what_it_was_given(
    handle: int, delivery_id: int, tag: bytes, message_format: int, settled: bool, more: bool
) -> None:
    data = transfer_frame(
        channel=3,
        handle=handle,
        delivery_id=delivery_id,
        tag=tag,
        message_format=message_format,
        settled=settled,
        more=more,
        state=compose(ACCEPTED),
        payload=b"xyz",
    )
    assert int.from_bytes(data[:4], "big") == len(data)
    value, end = decode_composite(data, 8, len(data))
    assert value == Transfer(
        handle, delivery_id, tag, message_format, settled, more, state=ACCEPTED, batchable=True
    )
    assert data[end:] == b"xyz"


@given(st.integers(0, 0xFFFF), st.booleans(), UINTS, UINTS, st.booleans())
def test_a_written_disposition_says_what_it_was_given(
    channel: int, role: bool, first: int, last: int, settled: bool
) -> None:
    out = BytesWriter()
    write_disposition(out, channel, role, first, last, settled, compose(ACCEPTED))
    data = out.getvalue()
    assert data[:8] == len(data).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big")
    value, end = decode(data, 8)
    assert composed(value) == Disposition(role, first, last, settled, ACCEPTED)
    assert end == len(data)


@given(TRANSFERS.map(compose) | DISPOSITIONS.map(compose), st.data())
def test_damaged_frames_are_read_or_refused(data: bytes, draw: st.DataObject) -> None:
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 3))):
        at = draw.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    end = draw.draw(st.integers(3, len(damaged)))
    for frame in (TransferFrame(), DispositionFrame()):
        try:
            frame.read(bytes(damaged), 3, end)
        except DecodeError:
            continue
        assert not isinstance(frame, TransferFrame) or frame.payload <= end
