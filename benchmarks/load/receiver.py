"""A receiving link: credit, completion by ranges, and the broker's confirmation of each.

A completion is sent unsettled, and counts once the broker has answered it.
"""

from __future__ import annotations

import select
import struct
from array import array
from time import perf_counter

from benchmarks.load.dialogue import CHANNEL, HANDLE, INCOMING_WINDOW, Opened
from benchmarks.load.frames import (
    DISPOSITION,
    FLOW,
    TRANSFER,
    Broken,
    delivery_id,
    disposition,
    unexpected,
)
from benchmarks.load.latency import Latencies
from benchmarks.load.line import SIZE, Line
from benchmarks.load.plan import Plan

_STAMPS = 1 << 16
# Ids and counts are serial numbers that wrap; RabbitMQ begins just below their end.
_SERIAL = 0xFFFF_FFFF
_COMPLETE = struct.Struct(">IBBH 4sBB B BI BI B 4s")
_GRANT = struct.Struct(">IBBH 4sBB BI BI BI BI BB BI BI")


class Purse:
    """The credit that all links together may still give, so that no message is taken in vain."""

    def __init__(self, messages: int) -> None:
        self.left = messages

    def draw(self, wanted: int) -> int:
        drawn = min(self.left, wanted)
        self.left -= drawn
        return drawn


class Receiver(Line):
    """Takes what comes, completes it, and gives credit again when half of it is used."""

    def __init__(
        self, opened: Opened, poll: select.epoll, latencies: Latencies, plan: Plan, purse: Purse
    ) -> None:
        super().__init__(opened, poll, latencies)
        self._window = plan.window
        self._purse = purse
        self._seen = 0
        self._granted = 0
        self._first_id = opened.next_outgoing_id
        self._first_count = opened.initial_delivery_count
        self._credit_at = 0.0
        self._completing: list[bytes] = []
        self._stamps = array("d", bytes(8 * _STAMPS))

    def state(self) -> str:
        return f"credit {self._granted}, came {self._seen}, confirmed {self.confirmed}"

    def frames(self, data: bytes, end: int) -> int:
        pos = 0
        now = perf_counter()
        count = 0
        start = last = -1
        while end - pos >= 8:
            after = pos + SIZE(data, pos)[0]
            if after > end:
                break
            code = data[pos + 10] if after - pos > 8 else FLOW
            if code == TRANSFER:
                count += 1
                last = pos
                if start < 0:
                    start = pos
            elif code == DISPOSITION:
                self._on_disposition(data, pos, after, now)
            elif code != FLOW:
                raise unexpected(data, pos, after)
            pos = after
        if count:
            self._complete(delivery_id(data, start), delivery_id(data, last), count)
        return pos

    def _complete(self, first: int, last: int, count: int) -> None:
        if last - first + 1 & _SERIAL != count:
            raise Broken(f"{count} transfers had the delivery-ids {first} to {last}")
        self._seen += count
        self._completing.append(
            _COMPLETE.pack(
                8 + 6 + 1 + 5 + 5 + 1 + 4, 2, 0, CHANNEL, b"\x00\x53\x15\xc0", 17, 5,
                0x41, 0x70, first, 0x70, last, 0x42, b"\x00\x53\x24\x45",
            )
        )  # fmt: skip
        stamp = self._credit_at if self._window == 1 else perf_counter()
        start = first % _STAMPS
        end = min(start + count, _STAMPS)
        self._stamps[start:end] = array("d", (stamp,)) * (end - start)
        if count > end - start:
            self._stamps[: count - (end - start)] = array("d", (stamp,)) * (count - (end - start))

    def _on_disposition(self, data: bytes, pos: int, end: int, now: float) -> None:
        first, last, accepted = disposition(data, pos, end)
        count = last - first + 1 & _SERIAL
        self.confirmed += count
        if not accepted:
            self.refused += count
        self.latencies.add((now - self._stamps[first % _STAMPS], count))

    def advance(self) -> None:
        if self.blocked:
            return
        out = self._completing
        self._completing = []
        credit = self._granted - self._seen
        # With one in flight the next is asked for only once this one is completed for certain.
        ready = credit == 0 == self._seen - self.confirmed if self._window == 1 else True
        if ready and credit <= self._window // 2:
            drawn = self._purse.draw(self._window - credit)
            if drawn:
                self._granted += drawn
                self._credit_at = perf_counter()
                out.append(self._grant())
        if out:
            self.write(b"".join(out))

    def _grant(self) -> bytes:
        """A flow with the credit that is now given, and the session's window as at first."""
        expected = self._first_id + self._seen & _SERIAL
        count = self._first_count + self._seen & _SERIAL
        size = 4 * 5 + 2 + 5 + 5
        return _GRANT.pack(
            8 + 6 + size, 2, 0, CHANNEL, b"\x00\x53\x13\xc0", size + 1, 7,
            0x70, expected, 0x70, INCOMING_WINDOW, 0x70, 0, 0x70, INCOMING_WINDOW,
            0x52, HANDLE, 0x70, count, 0x70, self._granted - self._seen,
        )  # fmt: skip
