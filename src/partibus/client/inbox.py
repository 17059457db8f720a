"""Our end of a link on which we receive: credit out, messages in, settlements and their answers.

Credit is given for each receive and taken back by a drain when it ends, so that no message lies
locked in a client that does not ask. What comes late all the same waits for the next receive.
"""

from __future__ import annotations

from collections import deque

from partibus.client.errors import MessagingError
from partibus.client.link_end import LinkEnd, failure_of
from partibus.client.pending import Pending
from partibus.engine.delivery import Delivery
from partibus.engine.events import Settlements
from partibus.engine.link import ReceiverLink
from partibus.wire.performatives import RELEASED

# The most messages that one receive can ask for; it bounds what an inbox can hold.
RECEIVE_MAX = 5_000


class Inbox(LinkEnd):
    """A link on which we receive."""

    def __init__(self, link: ReceiverLink) -> None:
        super().__init__(link)
        self._link = link
        self._arrived: deque[Delivery] = deque()
        self._arrival: Pending[None] | None = None
        self._drained: Pending[None] | None = None
        self._settling: dict[int, Pending[None]] = {}

    def want(self, count: int) -> Pending[None]:
        """Give credit for so many messages; done when there is at least one."""
        arrival: Pending[None] = Pending()
        # A drain that was never answered is over with the next credit.
        self._drained = None
        if self._arrived:
            arrival.resolve(None)
        elif self.error is not None:
            arrival.fail(self.error)
        else:
            self._arrival = arrival
            self._link.grant(min(count, RECEIVE_MAX))
        return arrival

    def drain(self) -> Pending[None]:
        """Take back the credit that is left; done when nothing more can come."""
        if self._drained is None:
            self._drained = Pending()
            if self._link.credit > 0:
                self._link.grant(self._link.credit, drain=True)
        drained = self._drained
        self._check_drained()
        return drained

    def _check_drained(self) -> None:
        # With its credit used up a link is drained, whether or not the service says so too.
        if self._drained is not None and (self._link.credit <= 0 or self.error is not None):
            drained, self._drained = self._drained, None
            drained.resolve(None)

    def take(self, count: int) -> list[Delivery]:
        """What has come, up to so many."""
        return [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]

    def settle(self, delivery_id: int, state: object) -> Pending[None]:
        """Give a delivery its outcome; done when the service has settled it."""
        settling: Pending[None] = Pending()
        if self.error is not None:
            settling.fail(self.error)
        else:
            self._settling[delivery_id] = settling
            self._link.settle([delivery_id], state, settled=False)
        return settling

    def release(self, delivery_ids: list[int]) -> None:
        """Give back messages that nobody has seen; they do not count as delivered."""
        if self.is_usable and delivery_ids:
            self._link.settle(delivery_ids, RELEASED)

    def close(self) -> Pending[None]:
        """Give back what has come and was not taken, then detach."""
        self.release([delivery.delivery_id for delivery in self._arrived if not delivery.settled])
        self._arrived.clear()
        return super().close()

    def on_flowed(self) -> None:
        """The service has answered a drain."""
        self._check_drained()

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Keep what came, and wake who waits for it."""
        self._arrived.extend(deliveries)
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.resolve(None)
        self._check_drained()

    def on_settled(self, event: Settlements) -> None:
        """Tell who waits whether their settlements hold."""
        for number, _ in event.deliveries:
            settling = self._settling.pop(number, None)
            if settling is None:
                continue
            failure = failure_of(event.state)
            if failure is not None:
                settling.fail(failure)
            else:
                settling.resolve(None)

    def on_ended(self, error: MessagingError) -> None:
        """What has come is still there; nothing more will, and nothing is answered."""
        super().on_ended(error)
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.fail(error)
        self._check_drained()
        settling, self._settling = self._settling, {}
        for pending in settling.values():
            pending.fail(error)
