"""The node's end of the process that works for bulk readers and writers.

It is started when it is first needed, and again when it is gone. The node connects to it once for
every request and passes on what it says; how many do so at a time is bounded, and whoever reads
slowly slows only their own stream down.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from partibus.broker.errors import (
    FragmentUnavailable,
    InvalidArgument,
    NotImplementedHere,
)

log = logging.getLogger(__name__)

# Streams at a time; more wait.
STREAMS_MAX = 16
# Streams that may wait.
WAITING_MAX = 256
BACKLOG = 64
# How often it is looked after who owes an answer.
LOOK_S = 0.5
LINE_BYTES_MAX = 4 * 1024 * 1024
MODULE = "partibus.management.bulk.worker"


class SideProcess:
    """One process beside the node, and the way to it."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [str(path) for path in paths]
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._address = ""
        self._listening: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._streams = asyncio.Semaphore(STREAMS_MAX)
        self._waiting = 0

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None
        if self._listening is not None and self._directory is not None:
            self._listening.close()
            self._directory.cleanup()

    def start(self) -> None:
        """See that the process is there."""
        if self._process is not None and self._process.poll() is None:
            return
        if not self._paths:
            raise NotImplementedHere(
                "This namespace keeps its messages in memory; bulk reads need them on disk."
            )
        if importlib.util.find_spec("pyarrow") is None:
            raise NotImplementedHere(
                "The broker has no pyarrow, which bulk reads and writes need: "
                "pip install 'partibus[bulk]'."
            )
        if self._process is not None:
            log.warning("bulk process ended code=%s", self._process.returncode)
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._listening is None:
            self._listening = self._listen()
        fileno = self._listening.fileno()
        # The command is our own: this Python, this program.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", MODULE, str(fileno), *self._paths],
            stdin=subprocess.PIPE,
            pass_fds=(fileno,),
        )
        log.info("bulk process started pid=%d", self._process.pid)

    def _listen(self) -> socket.socket:
        # A directory that nobody else may look into.
        self._directory = tempfile.TemporaryDirectory(prefix="partibus-bulk-")
        self._address = str(Path(self._directory.name) / "bulk.socket")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self._address)
        listening.listen(BACKLOG)
        return listening

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A question with a short answer."""
        async with Conversation(self, request) as conversation:
            return conversation.answer

    async def give(self, request: dict[str, Any], body: AsyncIterator[bytes]) -> dict[str, Any]:
        """A question with a long body, and a short answer."""
        async with Conversation(self, request, body) as conversation:
            return conversation.answer

    async def stream(self, request: dict[str, Any]) -> AsyncGenerator[bytes]:
        """A question with a long answer; the first chunk comes when it is known to be one.

        Raises in the middle where the answer was cut off.
        """
        async with Conversation(self, request) as conversation:
            yield b""
            async for chunk in conversation.chunks():
                yield chunk

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of one's own; give it back with `disconnect`."""
        if self._waiting >= WAITING_MAX:
            raise FragmentUnavailable("Too many bulk requests are waiting; try again.")
        self._waiting += 1
        try:
            await self._streams.acquire()
        finally:
            self._waiting -= 1
        try:
            self.start()
            return await asyncio.open_unix_connection(self._address, limit=LINE_BYTES_MAX)
        except BaseException:
            self._streams.release()
            raise

    def disconnect(self, writer: asyncio.StreamWriter) -> None:
        """The connection is not needed any more."""
        self._streams.release()
        writer.transport.abort()


class Conversation:
    """One request to the process and its answer."""

    def __init__(
        self,
        process: SideProcess,
        request: dict[str, Any],
        body: AsyncIterator[bytes] | None = None,
    ) -> None:
        self._process = process
        self._request = request
        self._body = body
        self.answer: dict[str, Any] = {}

    async def __aenter__(self) -> Conversation:
        self._reader, self._writer = await self._process.connect()
        try:
            self.answer = await self._ask()
        except BaseException:
            self._process.disconnect(self._writer)
            raise
        return self

    async def _ask(self) -> dict[str, Any]:
        self._writer.write(json.dumps(self._request).encode() + b"\n")
        if self._body is not None:
            await self._give(self._body)
        line = await self._line()
        if not line:
            raise FragmentUnavailable("The process for bulk requests went away; try again.")
        answer: dict[str, Any] = json.loads(line)
        if answer["status"] == HTTPStatus.BAD_REQUEST:
            raise InvalidArgument(answer["detail"])
        if answer["status"] != HTTPStatus.OK:
            raise FragmentUnavailable(answer["detail"])
        return answer

    async def _give(self, body: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in body:
                if chunk:
                    self._writer.write(len(chunk).to_bytes(4, "big") + chunk)
                    await self._writer.drain()
            self._writer.write(bytes(4))
        except ConnectionError:
            # The process has stopped listening; it may have said why.
            log.debug("a bulk body was not taken to its end")

    async def _line(self) -> bytes:
        """The answer. A connection waits in the socket for the next process if one is gone."""
        reading = asyncio.ensure_future(self._reader.readline())
        try:
            while not (await asyncio.wait((reading,), timeout=LOOK_S))[0]:
                self._process.start()
            return reading.result()
        except ConnectionError:
            return b""
        finally:
            reading.cancel()

    async def __aexit__(self, *_: object) -> None:
        self._process.disconnect(self._writer)

    async def chunks(self) -> AsyncIterator[bytes]:
        """What follows the answer."""
        try:
            while size := int.from_bytes(await self._reader.readexactly(4), "big"):
                yield await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise FragmentUnavailable("A bulk read was cut off.") from error
