"""The simulated namespace with forwarding: what is sent to one queue is received from another.

Whatever fails on the way, at either end: nothing is lost, nothing is stored twice, and the order
within a key holds. Once a message has been accepted, nothing excuses a copy of it.
"""

from __future__ import annotations

from partibus.broker.descriptions import QueueDescription
from partibus.testing.simulation import QUEUES, Simulation

EXPIRY_MS = 1_000


class ForwardingSimulation(Simulation):
    """Over two hops into a partitioned queue; and from a partitioned into a conventional one."""

    queues = (
        *QUEUES,
        QueueDescription("a", forward_to="b"),
        QueueDescription("b", forward_to="p"),
        QueueDescription("d", forward_to="c", enable_partitioning=True),
    )
    entrances = {"p": "a", "c": "d"}  # noqa: RUF012 - never changed


class DeadLetterSimulation(Simulation):
    """Messages expire, and are forwarded as dead letters."""

    queues = (
        *QUEUES,
        QueueDescription(
            "a",
            default_ttl_ms=EXPIRY_MS,
            dead_letter_on_expiration=True,
            forward_dead_letters_to="p",
        ),
        QueueDescription(
            "d",
            default_ttl_ms=EXPIRY_MS,
            dead_letter_on_expiration=True,
            forward_dead_letters_to="c",
            enable_partitioning=True,
        ),
    )
    entrances = {"p": "a", "c": "d"}  # noqa: RUF012 - never changed
