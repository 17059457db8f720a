"""What the operator says is read as a whole, or refused with the place that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partibus.broker.profiles import PROFILES
from partibus.config import (
    PROFILE_NAMES,
    ConfigurationError,
    ServeSettings,
    default_nodes,
    parse_configuration,
    read_configuration,
)


def file(namespace: object) -> bytes:
    return json.dumps({"UserConfig": {"Namespaces": [namespace]}}).encode()


def test_there_are_at_least_two_nodes() -> None:
    assert ServeSettings(Path("data")).nodes == default_nodes() >= 2


def test_the_profiles_of_a_file_are_those_of_the_broker() -> None:
    assert set(PROFILE_NAMES) == set(PROFILES)


def test_the_sections_of_a_file_are_found_with_their_places() -> None:
    found = parse_configuration(
        b"""{
          "UserConfig": {
            "Namespaces": [{
              "Name": "ns",
              "Profile": "standard",
              "AuthorizationRules": [{"KeyName": "all", "Rights": ["Listen"]}],
              "Queues": [
                {"Name": "queue.1"},
                {"Name": "queue.2", "Properties": {"LockDuration": "PT1M"},
                 "AuthorizationRules": [{"KeyName": "s", "Rights": ["Send"]}]},
              ],
              "Topics": [{
                "Name": "topic.1",
                "Subscriptions": [{
                  "Name": "sub.1",
                  "Rules": [{"Name": "r", "Properties": {"FilterType": "Sql"}}] // one
                }]
              }]
            }],
            "Logging": {"Type": "File"}
          }
        }"""
    )
    place = "UserConfig.Namespaces[0]"
    assert (found.name, found.profile) == ("ns", "standard")
    assert found.access_rules[0][0] == f"{place}.AuthorizationRules[0]"
    assert [each.path for each in found.queues] == [f"{place}.Queues[0]", f"{place}.Queues[1]"]
    assert found.queues[1].properties == {"LockDuration": "PT1M"}
    assert found.queues[1].access_rules[0][1] == {"KeyName": "s", "Rights": ["Send"]}
    rule = found.topics[0].parts[0].parts[0]
    assert rule.path == f"{place}.Topics[0].Subscriptions[0].Rules[0]"


@pytest.mark.parametrize(
    ("namespace", "path", "problem"),
    [
        ({"Name": "n", "Queue": []}, "Namespaces[0].Queue", "did you mean Queues?"),
        ({"Name": "n", "Colour": 1}, "Namespaces[0].Colour", "there are Name, Queues"),
        ({"Name": "n", "Queues": {}}, "Namespaces[0].Queues", "a list"),
        ({"Name": "n", "Queues": [1]}, "Namespaces[0].Queues[0]", "an object"),
        ({"Name": "n", "Queues": [{}]}, "Namespaces[0].Queues[0].Name", "a name is needed"),
        ({"Name": "n", "Queues": [{"name": "q"}]}, "Namespaces[0].Queues[0].name", "mean Name?"),
        ({"Queues": []}, "Namespaces[0].Name", "a name is needed"),
        ({"Name": "n", "Profile": "gold"}, "Namespaces[0].Profile", "emulator, basic"),
        ({"Name": "n", "Partitions": 2}, "Namespaces[0].Partitions", "premium"),
        (
            {"Name": "n", "Queues": [{"Name": "q", "Properties": []}]},
            "Namespaces[0].Queues[0].Properties",
            "an object",
        ),
        (
            {"Name": "n", "AuthorizationRules": [{"Key": "x"}]},
            "Namespaces[0].AuthorizationRules[0].Key",
            "KeyName",
        ),
    ],
)
def test_a_wrong_key_is_refused_with_its_path_and_what_is_allowed(
    namespace: object, path: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_configuration(file(namespace))
    assert refused.value.path == f"UserConfig.{path}"
    assert problem in refused.value.problem


def test_a_broker_has_one_namespace() -> None:
    with pytest.raises(ConfigurationError, match="one namespace, not 0"):
        parse_configuration(b'{"UserConfig": {"Namespaces": []}}')
    with pytest.raises(ConfigurationError, match="UserConfig: is missing"):
        parse_configuration(b"{}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read"):
        read_configuration(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{\n "UserConfig": }')
    with pytest.raises(ConfigurationError, match=r"broken\.json is not JSON: line 2, column 16"):
        read_configuration(broken)
