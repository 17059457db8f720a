"""What rules cost per message, in memory: 1, 10, 100 and 1,000 of them, of which one matches.

    python benchmarks/rules.py

Microseconds of CPU per message, the best of several rounds, and each as a multiple of one rule in
the same run. Correlation filters are looked up: 1,000 must cost at most 3 times one, on one
subscription and over as many. SQL filters are asked one by one: their cost may grow with their
number, not faster. Ends with 1 where that does not hold.
"""

from __future__ import annotations

import sys
import time

from partibus.broker.rule_descriptions import CorrelationFilter, Filter, RuleDescription, SqlFilter
from partibus.broker.rules.message_view import MessageView
from partibus.broker.rules.rule_set import RuleSet, TopicRules
from partibus.wire.codec import encode

COUNTS = (1, 10, 100, 1_000)
ROUNDS = 7
ROUND_S = 0.05
LOOKED_UP_RATIO_MAX = 3.0
# Asked one by one: a little beside their own cost is lost to the caches of the processor.
ASKED_RATIO_SLACK = 1.5

MESSAGE = b"".join((
    b"\x00\x53\x73", encode(["id-4711", None, "orders", "order-0", None, "correlation"]),
    b"\x00\x53\x74", encode({"kind": "created", "version": 0, "region": "emea", "amount": 99.5}),
    b"\x00\x53\x75", encode(bytes(1024)),
))  # fmt: skip


def correlation(number: int) -> Filter:
    return CorrelationFilter(label=f"order-{number}", properties=(("version", number),))


def sql(number: int) -> Filter:
    return SqlFilter(f"version = {number} AND region LIKE 'em%' AND amount * 2 > 100")


def one_subscription(filter_of: object, count: int) -> TopicRules[int]:
    topic: TopicRules[int] = TopicRules()
    # The one that matches comes last, after all others were asked.
    numbers = reversed(range(count))
    topic.put(0, RuleSet(RuleDescription(f"r{n}", filter_of(n)) for n in numbers))  # type: ignore[operator]
    return topic


def many_subscriptions(filter_of: object, count: int) -> TopicRules[int]:
    topic: TopicRules[int] = TopicRules()
    for number in range(count):
        topic.put(number, RuleSet([RuleDescription("r", filter_of(number))]))  # type: ignore[operator]
    return topic


def microseconds(topic: TopicRules[int]) -> float:
    """CPU per message, in the fastest of several rounds."""
    assert len(topic.evaluate(MessageView(MESSAGE))) == 1
    fastest = float("inf")
    for _ in range(ROUNDS):
        begun, count = time.process_time(), 0
        while time.process_time() - begun < ROUND_S:
            for _ in range(10):
                topic.evaluate(MessageView(MESSAGE))
            count += 10
        fastest = min(fastest, (time.process_time() - begun) / count)
    return fastest * 1e6


def main() -> int:
    fine = True
    for name, make, filter_of in (
        ("correlation filters, one subscription", one_subscription, correlation),
        ("correlation filters, a subscription each", many_subscriptions, correlation),
        ("SQL filters, one subscription", one_subscription, sql),
        ("SQL filters, a subscription each", many_subscriptions, sql),
    ):
        found = [microseconds(make(filter_of, count)) for count in COUNTS]
        print(f"{name}:")
        for count, cost in zip(COUNTS, found, strict=True):
            allowed = (
                LOOKED_UP_RATIO_MAX
                if filter_of is correlation or count == 1
                else ASKED_RATIO_SLACK * count
            )
            holds = cost / found[0] <= allowed
            fine &= holds
            print(
                f"  {count:5} rules {cost:8.1f} us  {cost / found[0]:7.2f} times one"
                f"  (at most {allowed:g}){'' if holds else '  NOT REACHED'}"
            )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
