"""Getting pipelines ready to run: a Spark to run them on, and a key of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.config import ConfigurationError, ServeSettings, parse_configuration
from partibus.pipeline_files import PipelineFiles
from partibus.runtime.endpoints import Endpoints
from partibus.runtime.pipelines import pipelines_key, pipelines_of, write_pipelines
from partibus.runtime.serving import new_key
from partibus.store.catalog import ACCESS_RULES_MAX, Catalog, NamespaceSettings

FILE = b"""{"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "q"}],
  "Pipelines": [{"Name": "copy", "Properties": {
    "Source": "q", "Sql": "SELECT body FROM messages", "TargetDirectory": "copies"}}]}]}}"""
PLAIN = b'{"UserConfig": {"Namespaces": [{"Name": "ns"}]}}'


def test_S5_without_spark_a_pipeline_is_refused_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert pipelines_of(parse_configuration(PLAIN)) == ()
    assert pipelines_of(None) == ()
    with pytest.raises(ConfigurationError) as refused:
        pipelines_of(parse_configuration(FILE))
    assert "pip install 'partibus[spark]'" in str(refused.value)
    assert refused.value.path == "UserConfig.Namespaces[0].Pipelines"


def test_S5_the_process_is_told_the_way_and_a_key_that_may_only_listen_and_send(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pyspark")
    catalog = Catalog.make(tmp_path / "c.sqlite", NamespaceSettings("ns", 2, "standard"), new_key)
    key = pipelines_key(tmp_path / "c.sqlite", new_key)
    assert pipelines_key(tmp_path / "c.sqlite", new_key) == key
    (rule,) = (each for each in catalog.load().rules_of() if each.primary_key == key)
    catalog.close()
    assert rule.rights == Right.LISTEN | Right.SEND
    endpoints = Endpoints(host="localhost", port=7, http_port=8)
    settings = ServeSettings(tmp_path, config=tmp_path / "shop" / "Config.json")
    write_pipelines(settings, pipelines_of(parse_configuration(FILE)), endpoints, key)
    declared = PipelineFiles(tmp_path).declared()
    assert declared is not None
    assert [each.name for each in declared.pipelines] == ["copy"]
    assert f"SharedAccessKeyName={rule.name};SharedAccessKey={key}" in declared.connection_string
    assert declared.python_path == str(tmp_path / "shop")
    write_pipelines(settings, (), endpoints, "")
    assert PipelineFiles(tmp_path).declared() is None


def test_S5_a_pipeline_that_is_not_declared_any_more_is_told_of_with_the_command_to_remove_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyspark")
    endpoints = Endpoints(host="localhost", port=7, http_port=8)
    settings = ServeSettings(tmp_path, config=tmp_path / "Config.json")
    write_pipelines(settings, pipelines_of(parse_configuration(FILE)), endpoints, "key")
    assert caplog.messages == []
    write_pipelines(settings, (), endpoints, "")
    assert "partibus pipeline remove copy (source=q reader=pipeline-copy)" in caplog.messages[0]


def test_S5_where_there_is_no_room_for_their_key_pipelines_are_refused(tmp_path: Path) -> None:
    catalog = Catalog.make(tmp_path / "c.sqlite", NamespaceSettings("ns", 2, "standard"), new_key)
    for number in range(ACCESS_RULES_MAX - 1):
        catalog.put_access_rule(AccessRule(f"rule-{number}", new_key(), new_key(), Right.SEND))
    catalog.close()
    with pytest.raises(ConfigurationError, match="PartibusPipelines cannot be made"):
        pipelines_key(tmp_path / "c.sqlite", new_key)
