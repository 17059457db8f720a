from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


def test_S1_a_store_that_cannot_be_read_is_named_and_the_others_are_served(tmp_path: Path) -> None:
    from partibus.management.bulk.worker import Worker
    from partibus.store.sqlite import SqliteStore

    SqliteStore(tmp_path / "good.sqlite").close()
    worker = Worker([str(tmp_path / "good.sqlite"), str(tmp_path / "gone.sqlite")])
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        threading.Thread(target=worker.serve, args=(listening,), daemon=True).start()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
            fragments = [(0, 9, 1, 1, 0), (1, 9, 1, 2, 0)]
            asked = {"what": "positions", "fragments": fragments, "at_ms": None}
            client.sendall(json.dumps(asked).encode() + b"\n")
            with client.makefile() as lines:
                told = json.loads(lines.readline())
    assert told["fragments"][0] == {"fragment": 1, "first": 1, "last": 0, "before": 0}
    assert "gone.sqlite" in told["fragments"][1]["unavailable"]
