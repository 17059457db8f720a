"""Every composite type of AMQP 1.0 that goes over a connection, declared as data.

A class lists its fields in the order of the standard with the AMQP type of each; how they are
encoded and decoded is in `composites`. Transfer and disposition are declared for completeness;
the frames of every message are read and written by `transfer`.
"""

from __future__ import annotations

from typing import Any, Final

from partibus.wire.composites import composite, of

ROLE_SENDER: Final = False
ROLE_RECEIVER: Final = True


@composite(0x1D, "amqp:error:list")
class Error:
    """Why something was refused or ended (§2.8.14)."""

    condition: str = of("symbol", default="amqp:internal-error")
    description: str | None = of("string", default=None)
    info: dict[Any, Any] | None = of("map", default=None)


@composite(0x10, "amqp:open:list")
class Open:
    """Negotiate connection parameters (§2.7.1)."""

    container_id: str = of("string", default="")
    hostname: str | None = of("string", default=None)
    max_frame_size: int = of("uint", default=0xFFFFFFFF)
    channel_max: int = of("ushort", default=0xFFFF)
    idle_time_out: int | None = of("uint", default=None)
    outgoing_locales: list[str] | None = of("symbols", default=None)
    incoming_locales: list[str] | None = of("symbols", default=None)
    offered_capabilities: list[str] | None = of("symbols", default=None)
    desired_capabilities: list[str] | None = of("symbols", default=None)
    properties: dict[Any, Any] | None = of("map", default=None)


@composite(0x11, "amqp:begin:list")
class Begin:
    """Begin a session on a channel (§2.7.2)."""

    remote_channel: int | None = of("ushort", default=None)
    next_outgoing_id: int = of("uint", default=0)
    incoming_window: int = of("uint", default=0)
    outgoing_window: int = of("uint", default=0)
    handle_max: int = of("uint", default=0xFFFFFFFF)
    offered_capabilities: list[str] | None = of("symbols", default=None)
    desired_capabilities: list[str] | None = of("symbols", default=None)
    properties: dict[Any, Any] | None = of("map", default=None)


@composite(0x12, "amqp:attach:list")
class Attach:
    """Attach a link to a session (§2.7.3)."""

    name: str = of("string", default="")
    handle: int = of("uint", default=0)
    role: bool = of("boolean", default=ROLE_SENDER)
    snd_settle_mode: int = of("ubyte", default=2)
    rcv_settle_mode: int = of("ubyte", default=0)
    source: Any = of("*", default=None)
    target: Any = of("*", default=None)
    unsettled: dict[Any, Any] | None = of("map", default=None)
    incomplete_unsettled: bool = of("boolean", default=False)
    initial_delivery_count: int | None = of("uint", default=None)
    max_message_size: int | None = of("ulong", default=None)
    offered_capabilities: list[str] | None = of("symbols", default=None)
    desired_capabilities: list[str] | None = of("symbols", default=None)
    properties: dict[Any, Any] | None = of("map", default=None)


@composite(0x13, "amqp:flow:list")
class Flow:
    """Update link state, or the windows of a session (§2.7.4)."""

    next_incoming_id: int | None = of("uint", default=None)
    incoming_window: int = of("uint", default=0)
    next_outgoing_id: int = of("uint", default=0)
    outgoing_window: int = of("uint", default=0)
    handle: int | None = of("uint", default=None)
    delivery_count: int | None = of("uint", default=None)
    link_credit: int | None = of("uint", default=None)
    available: int | None = of("uint", default=None)
    drain: bool = of("boolean", default=False)
    echo: bool = of("boolean", default=False)
    properties: dict[Any, Any] | None = of("map", default=None)


@composite(0x14, "amqp:transfer:list")
class Transfer:
    """Transfer a message, or a part of one (§2.7.5)."""

    handle: int = of("uint", default=0)
    delivery_id: int | None = of("uint", default=None)
    delivery_tag: bytes | None = of("binary", default=None)
    message_format: int | None = of("uint", default=None)
    settled: bool | None = of("boolean", default=None)
    more: bool = of("boolean", default=False)
    rcv_settle_mode: int | None = of("ubyte", default=None)
    state: Any = of("*", default=None)
    resume: bool = of("boolean", default=False)
    aborted: bool = of("boolean", default=False)
    batchable: bool = of("boolean", default=False)


@composite(0x15, "amqp:disposition:list")
class Disposition:
    """Inform the peer of the state of deliveries (§2.7.6)."""

    role: bool = of("boolean", default=ROLE_SENDER)
    first: int = of("uint", default=0)
    last: int | None = of("uint", default=None)
    settled: bool = of("boolean", default=False)
    state: Any = of("*", default=None)
    batchable: bool = of("boolean", default=False)


@composite(0x16, "amqp:detach:list")
class Detach:
    """Detach a link from its session (§2.7.7)."""

    handle: int = of("uint", default=0)
    closed: bool = of("boolean", default=False)
    error: Error | None = of("error", default=None)


@composite(0x17, "amqp:end:list")
class End:
    """End a session (§2.7.8)."""

    error: Error | None = of("error", default=None)


@composite(0x18, "amqp:close:list")
class Close:
    """Close a connection (§2.7.9)."""

    error: Error | None = of("error", default=None)


@composite(0x23, "amqp:received:list")
class Received:
    """How much of a message has arrived; not terminal (§3.4.1)."""

    section_number: int = of("uint", default=0)
    section_offset: int = of("ulong", default=0)


@composite(0x24, "amqp:accepted:list")
class Accepted:
    """The outcome of a message that was processed (§3.4.2)."""


@composite(0x25, "amqp:rejected:list")
class Rejected:
    """The outcome of an invalid message (§3.4.3)."""

    error: Error | None = of("error", default=None)


@composite(0x26, "amqp:released:list")
class Released:
    """The outcome of a message that was not and will not be acted upon (§3.4.4)."""


@composite(0x27, "amqp:modified:list")
class Modified:
    """The outcome of a message that was changed but not processed (§3.4.5)."""

    delivery_failed: bool | None = of("boolean", default=None)
    undeliverable_here: bool | None = of("boolean", default=None)
    message_annotations: dict[Any, Any] | None = of("map", default=None)


@composite(0x28, "amqp:source:list")
class Source:
    """Where the messages of a link come from (§3.5.3)."""

    address: Any = of("*", default=None)
    durable: int | None = of("uint", default=None)
    expiry_policy: str | None = of("symbol", default=None)
    timeout: int | None = of("uint", default=None)
    dynamic: bool | None = of("boolean", default=None)
    dynamic_node_properties: dict[Any, Any] | None = of("map", default=None)
    distribution_mode: str | None = of("symbol", default=None)
    filter: dict[Any, Any] | None = of("map", default=None)
    default_outcome: Any = of("*", default=None)
    outcomes: list[str] | None = of("symbols", default=None)
    capabilities: list[str] | None = of("symbols", default=None)


@composite(0x29, "amqp:target:list")
class Target:
    """Where the messages of a link go (§3.5.4)."""

    address: Any = of("*", default=None)
    durable: int | None = of("uint", default=None)
    expiry_policy: str | None = of("symbol", default=None)
    timeout: int | None = of("uint", default=None)
    dynamic: bool | None = of("boolean", default=None)
    dynamic_node_properties: dict[Any, Any] | None = of("map", default=None)
    capabilities: list[str] | None = of("symbols", default=None)


@composite(0x30, "amqp:coordinator:list")
class Coordinator:
    """The target of a link that controls transactions (§4.5.1)."""

    capabilities: list[str] | None = of("symbols", default=None)


@composite(0x31, "amqp:declare:list")
class Declare:
    """The message that begins a transaction (§4.5.2)."""

    global_id: Any = of("*", default=None)


@composite(0x32, "amqp:discharge:list")
class Discharge:
    """The message that ends a transaction (§4.5.3)."""

    txn_id: bytes = of("binary", default=b"")
    fail: bool = of("boolean", default=False)


@composite(0x33, "amqp:declared:list")
class Declared:
    """The outcome of a declare (§4.5.5)."""

    txn_id: bytes = of("binary", default=b"")


@composite(0x34, "amqp:transactional-state:list")
class TransactionalState:
    """The state of a delivery inside a transaction (§4.5.8)."""

    txn_id: bytes = of("binary", default=b"")
    outcome: Any = of("*", default=None)


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms:
    """What the server offers (§5.3.3.1)."""

    sasl_server_mechanisms: list[str] | None = of("symbols", default=None)


@composite(0x41, "amqp:sasl-init:list")
class SaslInit:
    """What the client chose (§5.3.3.2)."""

    mechanism: str = of("symbol", default="")
    initial_response: bytes | None = of("binary", default=None)
    hostname: str | None = of("string", default=None)


@composite(0x42, "amqp:sasl-challenge:list")
class SaslChallenge:
    """A question of the server (§5.3.3.3)."""

    challenge: bytes = of("binary", default=b"")


@composite(0x43, "amqp:sasl-response:list")
class SaslResponse:
    """The answer to it (§5.3.3.4)."""

    response: bytes = of("binary", default=b"")


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome:
    """Code 0 is ok, 1 a failed authentication (§5.3.3.6)."""

    code: int = of("ubyte", default=0)
    additional_data: bytes | None = of("binary", default=None)


ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
