"""The simulated namespace with forwarding: what is sent to one queue is received from another.

Whatever fails on the way, at either end: nothing is lost, nothing is stored twice, and the order
within a key holds. Once a message has been accepted, nothing excuses a copy of it.
"""

from __future__ import annotations

from partibus.broker.descriptions import QueueDescription
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.runtime.node import Node
from partibus.runtime.sending import Item, Sent
from partibus.runtime.sending_via import ViaSender
from partibus.testing.checker import Wrong
from partibus.testing.door import Door
from partibus.testing.simulation import QUEUES, Simulation

EXPIRY_MS = 1_000


class ForwardingSimulation(Simulation):
    """Over two hops into a partitioned queue; and from a partitioned into a conventional one."""

    queues: tuple[QueueDescription, ...] = (
        *QUEUES,
        QueueDescription("a", forward_to="b"),
        QueueDescription("b", forward_to="p"),
        QueueDescription("d", forward_to="c", enable_partitioning=True),
    )

    def entrance(self, node: Node, queue: str) -> Door:
        """Where messages are sent that are to be received from a queue."""
        return Door(node, {"p": "a", "c": "d"}[queue])


class DeadLetterSimulation(ForwardingSimulation):
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


class ViaDoor(Door):
    """Sends to a queue via another."""

    def __init__(self, node: Node, queue: str, via: str) -> None:
        super().__init__(node, queue)
        self.sender = ViaSender(node, node.resolve(via)[0], self.entity)

    def hand_over(self, items: list[Item], sent: Sent) -> None:
        """Give messages to the node."""
        self.sender.send(items, sent)


class ViaSimulation(ForwardingSimulation):
    """Messages are sent via another queue."""

    queues = (
        *QUEUES,
        QueueDescription("a"),
        QueueDescription("d", enable_partitioning=True),
    )
    # Without a via partition key they go through any fragment, and overtake each other.
    forgiven = frozenset({Wrong.OUT_OF_ORDER, Wrong.MISNUMBERED})

    def begin(self) -> None:
        """All receivers compete."""
        self.competing = True

    def entrance(self, node: Node, queue: str) -> Door:
        """Where messages are sent that are to be received from a queue."""
        return ViaDoor(node, queue, {"p": "a", "c": "d"}[queue])


class TopicSimulation(ForwardingSimulation):
    """Messages come through topics: forwarded to one, and forwarded by subscriptions."""

    queues = (*QUEUES, QueueDescription("a", forward_to="t"))

    def begin(self) -> None:
        """A partitioned topic for the one queue, a conventional one for the other."""
        for name, target, partitioned in (("t", "p", True), ("d", "c", False)):
            topic = TopicDescription(name, enable_partitioning=partitioned)
            self.world.catalog.create_topic(topic, 0)
            subscription = SubscriptionDescription("s", forward_to=target)
            self.world.catalog.create_subscription(name, subscription, 0)
