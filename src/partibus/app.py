"""Puts the rooms together and runs one node: the only place that knows them all.

A node opens its stores, finds the other nodes, accepts clients on the sockets it inherited, and
tells the supervisor once a second that its event loop turns. It ends in order on SIGTERM and at
once when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from partibus.gateway.listener import Listener
from partibus.gateway.settings import GatewaySettings
from partibus.gateway.websocket import WebSocket
from partibus.management.health import health_of
from partibus.management.server import HttpDoor
from partibus.management.settings import HttpSettings
from partibus.portal.pages import routes as portal_routes
from partibus.runtime.clock import SystemClock
from partibus.runtime.disk import ThreadDisk
from partibus.runtime.node import Node, Placement
from partibus.runtime.node_process import ALIVE, BEAT_S, READY
from partibus.runtime.node_settings import NodeSettings
from partibus.runtime.port import Doors, Port
from partibus.runtime.serving import CATALOG_NAME
from partibus.runtime.tls import Tls
from partibus.store.catalog import Catalog
from partibus.store.directory import read_layout
from partibus.store.staging import STAGING_NAME, Staging
from partibus.telemetry import start_logging

log = logging.getLogger(__name__)

# A node is ready when it reaches the others, or has waited so long for them.
PEERS_S_MAX = 5.0
PEERS_POLL_S = 0.02
EXIT_ORPHANED = 9
# What bulk writers staged and never published is removed after a week.
STAGED_S_MAX = 7 * 24 * 3600.0
SWITCH_INTERVAL_S = 0.002
# Messages come and go without cycles: looking for some after every 700 objects costs 5 % of a send.
COLLECT_AFTER = (100_000, 50, 100)


def run_node(settings: NodeSettings) -> None:
    """Run one node until SIGTERM."""
    start_logging(f"node-{settings.index}", settings.log_level, settings.log_format)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to answer.
    for inherited in (settings.status_fd, settings.lifeline_fd):
        os.set_inheritable(inherited, False)
    threading.Thread(
        target=_end_with_supervisor, args=(settings.lifeline_fd,), name="lifeline", daemon=True
    ).start()
    # Committing threads need the interpreter between statements; the loop holds it while it works.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(settings))


async def _run(settings: NodeSettings) -> None:
    loop = asyncio.get_running_loop()
    _beat(loop, settings.status_fd)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    node = make_node(settings.data, settings.index, settings.hop_addresses, settings.clock_base_ms)
    await node.start()
    gateway = GatewaySettings(settings.namespace, node=settings.index, dev=settings.dev)
    listener = Listener(node, gateway, loop)
    web = HttpSettings(settings.namespace, node=settings.index, dev=settings.dev)
    layout = read_layout(settings.data)
    paths = [layout.store_path(store) for store in range(layout.stores)]
    door = HttpDoor(
        node,
        web,
        loop,
        store_paths=paths,
        staging=settings.data / STAGING_NAME,
        data=settings.data,
        pages=portal_routes(),
    )
    await asyncio.to_thread(Staging(settings.data / STAGING_NAME).sweep, time.time() - STAGED_S_MAX)
    tls = Tls(settings.tls_cert, settings.tls_key)
    renewal = loop.create_task(tls.keep_up())
    websocket = partial(WebSocket, listener.protocol, loop)
    doors = Doors(amqp=listener.protocol, http=door.protocol, websocket=websocket)
    port = Port(doors, loop, tls.context)
    for each in settings.listening:
        port.listen(_socket(each.fd), tls_only=each.tls_only)
    # What lives now lives as long as the node: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    await _reach_peers(node)
    os.write(settings.status_fd, READY)
    await stop.wait()
    log.info("node ending connections=%d", len(listener.connections))
    renewal.cancel()
    await port.close()
    await asyncio.gather(door.close(), listener.close())
    await node.stop()


def make_node(data: Path, index: int, hop_addresses: tuple[str, ...], clock_base_ms: int) -> Node:
    """A node over a data directory that its owner has made."""
    loop = asyncio.get_running_loop()
    layout = read_layout(data)
    return Node(
        Placement(index, hop_addresses, layout.stores),
        Catalog.open(data / CATALOG_NAME),
        layout.open_store,
        lambda store: ThreadDisk(loop, f"store-{store:02d}"),
        SystemClock(loop, clock_base_ms),
        loop,
        disk_of=lambda store: layout.store_path(store).parent,
    )


async def _reach_peers(node: Node) -> None:
    waited_s = 0.0
    while health_of(node).nodes_down and waited_s < PEERS_S_MAX:
        await asyncio.sleep(PEERS_POLL_S)
        waited_s += PEERS_POLL_S


def _beat(loop: asyncio.AbstractEventLoop, status_fd: int) -> None:
    os.write(status_fd, ALIVE)
    loop.call_later(BEAT_S, _beat, loop, status_fd)


def _end_with_supervisor(lifeline_fd: int) -> None:
    """Wait for the end of the lifeline, which nobody writes to, and end with it.

    From a thread and at once: the event loop may be stuck, and a crash is what stores are made for.
    """
    os.read(lifeline_fd, 1)
    os._exit(EXIT_ORPHANED)


def _socket(fileno: int) -> socket.socket:
    inherited = socket.socket(fileno=fileno)
    inherited.setblocking(False)
    inherited.set_inheritable(False)
    return inherited


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
