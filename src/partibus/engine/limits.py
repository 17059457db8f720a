"""The limits of one connection: everything that a peer could make grow has its bound here.

Not for the limits of entities (message count, lock times): those are rules of the broker.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may use. The defaults suit a server that faces strangers."""

    # AMQP 1.0 §2.4.1: before open, no frame may be larger than 512 bytes. SASL frames of some
    # clients carry tokens, and clients pipeline open with begin, so the bound is a little wider.
    frame_size_before_open: int = 4096
    frame_size: int = 65536
    channel_max: int = 4999
    sessions_max: int = 1000
    handle_max: int = 4999
    links_per_session_max: int = 1000
    message_size_max: int = 1_048_576 + 65536
    # Deliveries sent but not yet settled, per session; beyond it `sendable` is 0.
    unsettled_max: int = 200_000
    # Bytes written but not yet taken by `data_to_send`, and queued for the peer's window.
    buffered_bytes_max: int = 8_388_608
    incoming_window: int = 5000
    outgoing_window: int = 5000
    time_to_open_ms: int = 20_000
    time_to_close_ms: int = 5_000
