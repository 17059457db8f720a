"""Makes the broker's own certificate anew before it ends, while the broker runs.

Looks once a day, in a thread of the supervisor; the nodes notice the new file by themselves
(runtime.tls). How a certificate is made, and when it is due, is in runtime.authority. Certificates
of the operator's own are the operator's to renew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from partibus.runtime.authority import make_certificates
from partibus.store import StoreError

log = logging.getLogger(__name__)

# Certificates are due weeks before they end, so there are many days on which to try.
LOOK_EVERY_S = 24 * 3600.0


class Renewal:
    """Keeps the certificate in a data directory good."""

    def __init__(self, data: Path, names: Sequence[str], now_ms: Callable[[], int]) -> None:
        self._data = data
        self._names = tuple(names)
        self._now_ms = now_ms

    def look(self) -> None:
        """Make the certificate anew where that is due."""
        try:
            make_certificates(self._data, self._names, self._now_ms())
        except StoreError as error:
            log.error("certificate not renewed, tried again tomorrow: %s", error)  # noqa: TRY400

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look once a day, until waiting says that it is over."""
        while not wait(LOOK_EVERY_S):
            self.look()


@contextmanager
def renewing(renewal: Renewal) -> Iterator[None]:
    """Keep the certificate good meanwhile, in a thread: files may take their time."""
    over = threading.Event()
    threading.Thread(target=renewal.run, args=(over.wait,), name="renewal", daemon=True).start()
    try:
        yield
    finally:
        over.set()
