"""The certificate that clients are shown, and its renewal while they come and go.

Reads certificate and key from files and looks again from time to time: connections made after a
change are shown the new ones. Files that cannot be used leave the old ones in force. Who makes the
files is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from partibus.config import ConfigurationError

log = logging.getLogger(__name__)

# How long a change of the files may go unnoticed.
LOOK_EVERY_S = 5.0

# What tells one version of a file from another.
Stamp = tuple[tuple[int, int, int], ...]


def make_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A context for the server's side. Raises ConfigurationError where the files are no good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigurationError(
            "--tls-cert", f"{certificate} and {key} are not a certificate and its key: {error}"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            "--tls-cert", f"{certificate} or {key} cannot be read: {error.strerror}"
        ) from error
    return context


def _no_password() -> str:
    """Asked for a key that is locked; without this OpenSSL would ask at a terminal, and wait."""
    return ""


class Tls:
    """The context for new connections, kept up to date with its files."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._stamp = _stamp(self._files)
        self._failed: Stamp | None = None
        self._context = make_context(certificate, key)

    def context(self) -> ssl.SSLContext:
        """What the next connection is shown."""
        return self._context

    async def keep_up(self) -> None:
        """Look for changes for as long as the node runs."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            # In a thread: files may lie where reading takes time.
            await asyncio.to_thread(self.look)

    def look(self) -> bool:
        """Take in what has changed; whether something had."""
        stamp = _stamp(self._files)
        if stamp in (self._stamp, self._failed):
            return False
        try:
            self._context = make_context(*self._files)
        except ConfigurationError as error:
            # Perhaps only one of the two is there yet. The next change is tried again.
            self._failed = stamp
            log.error("certificate not renewed, the old one stays: %s", error)  # noqa: TRY400
            return False
        self._stamp = stamp
        self._failed = None
        log.info("certificate renewed file=%s", self._files[0])
        return True


def _stamp(files: tuple[Path, ...]) -> Stamp:
    found = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)
