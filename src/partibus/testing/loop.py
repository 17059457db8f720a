"""An event loop in virtual time: a week's sleep is instant, and a deadlock raises.

Nothing waits for the real clock: where the loop would sleep, its time jumps. Sockets between two
ends in the same process work, because what one writes the other can read at once; threads do not,
because nobody could tell how long they take. A simulated network may stand in for Unix sockets.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from partibus.testing.clock import START_MS

T = TypeVar("T")

# A simulation that runs for longer than this has lost its way.
LIMIT_S = 24 * 60 * 60.0


class Deadlock(RuntimeError):
    """Everybody waits, and nothing is left that could happen."""


class Network(Protocol):
    """What a loop asks instead of the operating system."""

    def connect(self, path: str, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """Connect; raises OSError where nobody listens."""

    def listen(self, path: str, make: Callable[[], asyncio.Protocol]) -> asyncio.AbstractServer:
        """Accept connections from now on."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio, with time that passes only when everybody waits for it."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._now_s = 0.0
        self._limit_s = limit_s
        self.network: Network | None = None
        # What callbacks raised: nobody else would hear of it.
        self.failures: list[BaseException] = []
        # Whether whoever runs the loop forever is told of the first one at once.
        self.stops_at_failure = False
        super().__init__(_JumpingSelector(self))
        self.set_exception_handler(self._note)

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or RuntimeError(context["message"]))
        if self.stops_at_failure:
            self.stop()

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now_s

    def jump(self, seconds: float | None) -> None:
        """Nothing is ready: go to the next thing that is due."""
        if seconds is None:
            raise Deadlock("everybody waits, and nothing is due")
        self._now_s += seconds
        if self._now_s > self._limit_s:
            raise Deadlock(f"still running after {self._limit_s} simulated seconds")

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Any, path: str, **options: Any
    ) -> Any:
        """Connect over the simulated network, where there is one."""
        if self.network is None:
            return await super().create_unix_connection(protocol_factory, path, **options)
        return None, self.network.connect(path, protocol_factory)

    async def create_unix_server(  # type: ignore[override]
        self, protocol_factory: Any, path: str, **options: Any
    ) -> Any:
        """Listen on the simulated network, where there is one."""
        if self.network is None:
            return await super().create_unix_server(protocol_factory, path, **options)
        return self.network.listen(path, protocol_factory)


class _JumpingSelector(selectors.DefaultSelector):
    """Looks at the sockets, and jumps where it would sleep."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._loop.jump(timeout)
        return ready


class LoopClock:
    """A runtime.clock.Clock in the time of an event loop. Each node of a world has its own."""

    __slots__ = ("_loop", "_stopped")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stopped = False

    def now_ms(self) -> int:
        """Milliseconds since 1970: the loop began at START_MS."""
        # A hair is added, so that a timer for a millisecond does not find itself before it.
        return START_MS + int(self._loop.time() * 1000 + 1e-3)

    def call_at(self, when_ms: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call back once, not before this time."""

        def run() -> None:
            if not self._stopped:
                callback()

        return self._loop.call_at((when_ms - START_MS) / 1000, run)

    def stop(self) -> None:
        """The process that this clock belongs to is gone: nothing is called any more."""
        self._stopped = True


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in virtual time, on a loop of its own; what a callback raised, raises."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main(loop))
        if loop.failures:
            raise loop.failures[0]
        return result
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def simulated(
    test: Callable[[VirtualLoop, Path], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    """Let pytest run an async test in virtual time, with a folder of its own."""

    def in_virtual_time(tmp_path: Path) -> None:
        run(lambda loop: test(loop, tmp_path))

    in_virtual_time.__name__ = test.__name__
    in_virtual_time.__doc__ = test.__doc__
    return in_virtual_time
