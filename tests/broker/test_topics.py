"""Topics are checked although they are not served yet, so that no file is half read."""

from __future__ import annotations

import pytest

from partibus.broker.profiles import PROFILES
from partibus.broker.properties import InvalidDescription
from partibus.broker.topics import check_rule, check_subscription, check_topic


def test_what_the_vendors_sample_says_is_allowed() -> None:
    check_topic(
        {
            "DefaultMessageTimeToLive": "PT1H",
            "DuplicateDetectionHistoryTimeWindow": "PT20S",
            "RequiresDuplicateDetection": False,
        },
        PROFILES["emulator"],
    )
    check_subscription({"LockDuration": "PT1M", "MaxDeliveryCount": 3, "ForwardTo": ""})
    check_rule(
        {
            "FilterType": "Correlation",
            "CorrelationFilter": {"Label": "subject1", "Properties": {"prop3": "value3"}},
        }
    )
    check_rule(
        {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "sys.MessageId = '123'"},
            "Action": {"SqlExpression": "SET sys.To = 'x'"},
        }
    )


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"FilterType": "Magic"}, "FilterType"),
        ({"Filter": {}}, "Filter"),
        ({"CorrelationFilter": {"Labl": "x"}}, "Labl"),
        ({"CorrelationFilter": {"Properties": 1}}, "Properties"),
        ({"SqlFilter": "1=1"}, "SqlFilter"),
        ({"SqlFilter": {"SqlExpression": "x" * 1025}}, "SqlExpression"),
    ],
)
def test_a_rule_that_could_not_work_is_refused(properties: dict[str, object], name: str) -> None:
    with pytest.raises(InvalidDescription) as refused:
        check_rule(properties)
    assert refused.value.property == name


def test_a_basic_namespace_has_no_topics() -> None:
    with pytest.raises(InvalidDescription, match="basic"):
        check_topic({}, PROFILES["basic"])


def test_a_subscription_has_the_limits_of_a_queue() -> None:
    with pytest.raises(InvalidDescription, match="LockDuration"):
        check_subscription({"LockDuration": "PT1S"})
