"""A sending link: keeps a window of messages unconfirmed, within credit and session window."""

from __future__ import annotations

import os
import select
from array import array
from time import perf_counter

from benchmarks.load.block import COUNT, Block
from benchmarks.load.dialogue import CHANNEL, HANDLE, Opened
from benchmarks.load.frames import DISPOSITION, FLOW, disposition, flow, unexpected
from benchmarks.load.latency import Latencies
from benchmarks.load.line import SIZE, Line
from benchmarks.load.plan import Plan

from partibus.wire.performatives import Flow

_STAMPS = 1 << 16


class Sender(Line):
    """Sends its share of the messages. Delivery-ids and transfer-ids are the same numbers."""

    def __init__(
        self, opened: Opened, poll: select.epoll, latencies: Latencies, plan: Plan, share: int
    ) -> None:
        super().__init__(opened, poll, latencies)
        self._share = share
        self._window = plan.window
        name = os.urandom(4).hex()
        self._block = Block(CHANNEL, HANDLE, plan, name)
        self._next = 0
        self._stamps = array("d", bytes(8 * _STAMPS))
        self._credit_end = 0
        self._session_end = opened.incoming_window
        for seen in opened.flows:
            self._on_flow(seen)

    def state(self) -> str:
        limits = f"credit to {self._credit_end}, session to {self._session_end}"
        return f"sent {self._next}, confirmed {self.confirmed} ({limits})"

    def _on_flow(self, seen: Flow) -> None:
        self._session_end = (seen.next_incoming_id or 0) + seen.incoming_window
        if seen.link_credit is not None:
            self._credit_end = (seen.delivery_count or 0) + seen.link_credit

    def frames(self, data: bytes, end: int) -> int:
        pos = 0
        now = perf_counter()
        while end - pos >= 8:
            after = pos + SIZE(data, pos)[0]
            if after > end:
                break
            if after - pos > 8:
                code = data[pos + 10]
                if code == DISPOSITION:
                    self._on_disposition(data, pos, after, now)
                elif code == FLOW:
                    self._on_flow(flow(data, pos, after))
                else:
                    raise unexpected(data, pos, after)
            pos = after
        return pos

    def _on_disposition(self, data: bytes, pos: int, end: int, now: float) -> None:
        first, last, accepted = disposition(data, pos, end)
        count = last - first + 1
        self.confirmed += count
        if not accepted:
            self.refused += count
        self.latencies.add((now - self._stamps[first % _STAMPS], count))

    def advance(self) -> None:
        limit = min(self._share, self.confirmed + self._window, self._credit_end, self._session_end)
        while self._next < limit and not self.blocked:
            block = self._block
            if self._next >= block.base + COUNT:
                block.turn_to(self._next)
            last = min(limit, block.base + COUNT)
            self._stamp(self._next, last)
            frames = block.frames(self._next, last)
            self._next = last
            self.write(frames)

    def _stamp(self, first: int, last: int) -> None:
        start = first % _STAMPS
        self._stamps[start : start + last - first] = array("d", (perf_counter(),)) * (last - first)
