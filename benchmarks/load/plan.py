"""What the load generator is told to do, and what it answers: both go as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

# The share of the messages that the rate is taken from.
RATED = 0.95
SEND = "send"
RECEIVE = "receive"


@dataclass(frozen=True)
class Endpoint:
    """Where the queue is and how to get in. Without a key there is no $cbs: ANONYMOUS will do.

    RabbitMQ 4 refuses rcv-settle-mode second (1), yet confirms a completion sent unsettled.
    """

    port: int
    address: str
    host: str = "127.0.0.1"
    key_name: str = ""
    key: str = ""
    rcv_settle_mode: int = 1


@dataclass(frozen=True)
class Plan:
    """One measurement: `window` is unconfirmed messages, or credit, of each connection."""

    endpoint: Endpoint
    operation: str
    messages: int
    window: int
    connections: int
    size: int = 1000
    # How many partition keys the messages have; 0: none.
    keys: int = 0
    # Whether these keys are session ids.
    sessions: bool = False
    # When messages become active, in milliseconds since 1970; 0: at once.
    due_ms: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        fields = json.loads(text)
        return Plan(endpoint=Endpoint(**fields.pop("endpoint")), **fields)


@dataclass(frozen=True)
class Outcome:
    """What came of a plan. Latencies are of a send, or of a completion, until its confirmation.

    With one message in flight a receive is timed from the credit to the confirmed completion. The
    rate is that of the first messages; how long the rest took stands apart, because it does not
    grow with the number of messages.
    """

    messages: int
    refused: int
    rate: float
    rest_seconds: float
    generator_cpu_seconds: float
    p50_ms: float
    p99_ms: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Outcome:
        return Outcome(**json.loads(text))
