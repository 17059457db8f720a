"""Limits so small that what happens to a long backlog happens to a short one. For tests."""

from __future__ import annotations

LITTLE_ROOM = {
    "broker.window.WINDOW_MESSAGES_MAX": 12,
    "broker.window.WINDOW_MESSAGES_LOW": 6,
    "broker.window.WINDOW_BYTES_MAX": 8_000,
    "broker.window.WINDOW_BYTES_LOW": 4_000,
    "broker.sessions.AVAILABLE_SESSIONS_MAX": 3,
    "broker.sessions.SESSION_MESSAGES_MAX": 4,
    "runtime.session_dispenser.SESSION_MESSAGES_MAX": 4,
    "runtime.session_dispenser.HEADS_READ": 5,
    "runtime.session_dispenser.RUN_MAX": 3,
    "runtime.driver.LOAD_MESSAGES": 5,
    "runtime.driver.LOAD_BYTES": 200,
    "runtime.driver.STAGED_OPERATIONS_MAX": 10,
    "runtime.driver.IDLE_WINDOW_BYTES_MAX": 10_000,
    "runtime.driver.TRIM_EVERY_COMMITS": 3,
    "runtime.dispenser.RUN_MAX": 4,
    "runtime.forwarding.TRANSFER_MESSAGES_MAX": 12,
    "runtime.forwarding.MOVE_MESSAGES": 5,
    "runtime.outgoing.HELD_MESSAGES_MAX": 10,
    "runtime.outgoing.PULL_MESSAGES": 3,
    "runtime.outgoing.BATCH_MESSAGES_MAX": 4,
    "runtime.outgoing.BATCHES_UNDER_WAY_MAX": 3,
}
