"""The jobs from the shell: what they print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from partibus.cli.pipeline_jobs import pipeline_commands
from partibus.pipeline.jobs import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.conftest import Queue

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, queue: Queue) -> Run:
    def run(*arguments: str) -> Result:
        variables = {"SERVICEBUS_CONNECTION_STRING": queue.broker.connection_string}
        return CliRunner(env=variables).invoke(pipeline_commands, list(arguments))

    return run


def test_S3_S4_an_entity_is_captured_audited_planned_for_and_reported_on(
    run: Run, queue: Queue, tmp_path: Path
) -> None:
    queue.send_spread(40)
    out = str(tmp_path / "out")
    captured = run("capture", queue.name, out, "--output", "json", "--master", "local[2]")
    assert captured.exit_code == 0, captured.output
    assert json.loads(captured.stdout)["messages"] == 40

    audited = run("audit", queue.name, "--capture", out, "--report", str(tmp_path / "audit.json"))
    assert audited.exit_code == 0, audited.output
    assert "is in order" in audited.stderr
    assert json.loads((tmp_path / "audit.json").read_text())["totals"]["accepted"] == 40

    planned = run("plan", "--parquet", out, "--key", "messageId", "--fragments", "4")
    assert planned.exit_code == 0, planned.output
    assert "recommended: conventional" in planned.stdout

    page = tmp_path / "report.html"
    reported = run("report", "--entity", queue.name, "--html", str(page))
    assert reported.exit_code == 0, reported.output
    assert "40 messages" in reported.stdout
    assert "<svg" in page.read_text()


def test_S3_a_job_that_fails_says_so(run: Run, queue: Queue) -> None:
    wrong = run("replay", queue.name, "--parquet", "nowhere")
    assert isinstance(wrong.exception, JobFailed)
    assert run("replay", queue.name).exit_code == 2
    assert run("audit", queue.name, "--all-captured").exit_code == 2
    assert run("replay", queue.name, "--parquet", "nowhere", "--rate", "-1").exit_code == 2


def test_S3_directories_may_be_relative_and_captures_empty(
    run: Run, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("capture", queue.name, "captured").exit_code == 0
    empty = run("replay", queue.name, "--parquet", "captured", "--state", "nothing")
    assert empty.exit_code == 0, empty.output
    queue.send("a", "b")
    assert run("capture", queue.name, "captured").exit_code == 0
    for before in ("0", "2"):
        sent = run("replay", queue.name, "--parquet", "captured", "--state", "again")
        assert sent.exit_code == 0, sent.output
        assert before in sent.stdout.splitlines()[-2]
    assert len(queue.received()) == 4
    wrong = run("replay", queue.name, "--parquet", "captured", "--where", "nothing = 1")
    assert isinstance(wrong.exception, JobFailed)
    assert "Traceback" not in wrong.stderr
    assert "stacktrace" not in wrong.stderr
