"""Promises of the frame splitter: any chunking gives the same frames, and sizes are bounded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from partibus.wire.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FrameSplitter,
    FramingError,
    write_frame,
)

FRAME_MAX = 1000
FRAMES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 0xFFFF), st.binary(max_size=FRAME_MAX - 8)),
    max_size=6,
)
Frame = tuple[int, int, bytes]


def stream(frames: list[Frame]) -> bytes:
    out = BytesWriter()
    for frame_type, channel, body in frames:
        write_frame(out, frame_type, channel, body)
    return out.getvalue()


def taken(splitter: FrameSplitter) -> list[Frame]:
    frames = []
    while splitter.next_frame():
        body = splitter.data[splitter.body : splitter.end]
        frames.append((splitter.frame_type, splitter.channel, body))
    return frames


@given(FRAMES, st.lists(st.integers(0, 3000), max_size=10))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[Frame], cuts: list[int]
) -> None:
    data = stream(frames)
    splitter = FrameSplitter(FRAME_MAX)
    found = []
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(marks):
        splitter.feed(data[start:end])
        found += taken(splitter)
    assert found == frames
    assert splitter.buffered == 0


@given(FRAMES)
def test_single_bytes_give_the_same_frames(frames: list[Frame]) -> None:
    splitter = FrameSplitter(FRAME_MAX)
    found = []
    for octet in stream(frames):
        splitter.feed(bytes([octet]))
        found += taken(splitter)
    assert found == frames


def test_a_header_and_frames_in_one_chunk_are_told_apart() -> None:
    splitter = FrameSplitter(FRAME_MAX)
    splitter.feed(AMQP_HEADER[:3])
    assert splitter.next_header() == b""
    splitter.feed(AMQP_HEADER[3:] + EMPTY_FRAME)
    assert splitter.next_header() == AMQP_HEADER
    assert taken(splitter) == [(0, 0, b"")]


def test_an_extended_header_is_stepped_over() -> None:
    splitter = FrameSplitter(FRAME_MAX)
    splitter.feed(b"\x00\x00\x00\x0d\x03\x00\x00\x07abcdX")
    assert taken(splitter) == [(0, 7, b"X")]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x10\x00\x02\x00\x00\x00",
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x08\x03\x00\x00\x00",
    ],
    ids=["too large", "far too large", "too small", "offset too small", "offset too large"],
)
def test_a_frame_that_cannot_be_is_refused_by_its_first_eight_bytes(data: bytes) -> None:
    splitter = FrameSplitter(FRAME_MAX)
    splitter.feed(data)
    with pytest.raises(FramingError):
        splitter.next_frame()
