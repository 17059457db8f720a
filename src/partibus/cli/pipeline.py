"""`partibus pipeline …`: jobs on whole entities, run with Spark.

Each command starts a session of its own, on this machine or on a cluster (`--master`), shows a
bar on standard error while it works, and prints what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partibus.cli.connecting import connection_string as resolved
from partibus.cli.connecting import reached
from partibus.cli.output import show_one, shown
from partibus.pipeline.jobs.broker import Broker
from partibus.pipeline.jobs.errors import JobFailed
from partibus.pipeline.jobs.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.group("pipeline")
def pipeline_commands() -> None:
    """Work with Spark: pipelines that the broker runs, and jobs on whole entities."""


def sparked(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a job: where Spark runs, and which broker it works with."""
    for option in (
        click.option(
            "--http-endpoint",
            default="",
            help="The broker's HTTP address, where executors reach it by another.",
        ),
        click.option("--ca-certificate", default="", help="The certificate to trust, for https."),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: this machine, or a cluster as spark://HOST:PORT.",
        ),
        shown,
        reached,
    ):
        command = option(command)
    return command


def sourced(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where messages come from."""
    command = click.option(
        "--entity", default="", help="Messages of an entity, as NAME or NAME/$deadletterqueue."
    )(command)
    return click.option("--parquet", default="", help="Messages of a capture: its directory.")(
        command
    )


def broker_of(options: dict[str, Any]) -> Broker:
    """The broker that a command's options name."""
    text = resolved(options["connection_string"], options["data"])
    return Broker(text, options["http_endpoint"], options["ca_certificate"])


@contextmanager
def session(name: str, master: str) -> Iterator[SparkSession]:
    """A Spark session for one job; one that was there before stays."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise JobFailed("Spark is not installed: pip install 'partibus[spark]'") from error
    from partibus.pipeline.session import local_session, without_traces

    without_traces()
    before = SparkSession.getActiveSession()
    spark = local_session(f"partibus {name}", master)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar on standard error, which is gone when the job is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as live:
        task = live.add_task("starting Spark", total=None)

        def tell(what: str, done: int, total: int | None) -> None:
            live.update(task, description=what, completed=done, total=total)

        yield tell


@pipeline_commands.command("capture")
@click.argument("entity")
@click.argument("directory")
@click.option("--continuous", is_flag=True, help="Go on until interrupted.")
@click.option(
    "--every",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds between batches, then.",
)
@click.option(
    "--reader-name", default="", help="Have the broker keep what consumers complete until captured."
)
@sparked
def capture_command(
    entity: str,
    directory: str,
    continuous: bool,
    every: float,
    reader_name: str,
    master: str,
    output: str,
    **options: Any,
) -> None:
    """Write the messages of ENTITY to Parquet files in DIRECTORY, by date and fragment.

    Run again, it goes on where it was, also after a kill: each message is there once.
    """
    broker = broker_of(options)
    with bar() as progress, session("capture", master) as spark:
        from partibus.pipeline.jobs.capture import capture

        found = capture(
            spark,
            broker,
            entity,
            located(directory),
            continuous=continuous,
            every_s=every,
            reader_name=reader_name,
            progress=progress,
        )
    show_one(asdict(found), output)
    if not reader_name:
        click.echo(
            "note: what consumers completed before it was captured is not there; --reader-name has "
            "the broker keep it",
            err=True,
        )


@pipeline_commands.command("replay")
@click.argument("target")
@sourced
@click.option("--where", default="", help="Only these: a SQL expression over their columns.")
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0.0, help="At most so many messages a second."
)
@click.option("--new-ids", is_flag=True, help="With new message ids instead of their own.")
@click.option("--state", default="", help="A directory that lets it go on after an interruption.")
@sparked
def replay_command(
    target: str,
    parquet: str,
    entity: str,
    where: str,
    rate: float,
    new_ids: bool,
    state: str,
    master: str,
    output: str,
    **options: Any,
) -> None:
    """Send captured messages, or those of a dead-letter queue, to TARGET.

    They stay where they come from. With --state, each is sent once however often this is run.
    """
    if bool(parquet) == bool(entity):
        raise click.UsageError("give --parquet or --entity")
    broker = broker_of(options)
    with bar() as progress, session("replay", master) as spark:
        from partibus.pipeline.jobs.replay import replay

        found = replay(
            spark,
            broker,
            target,
            parquet=located(parquet),
            entity=entity,
            where=where,
            rate=rate,
            new_ids=new_ids,
            state=state,
            progress=progress,
        )
    show_one(asdict(found), output)


def located(directory: str) -> str:
    """A directory as Spark names it: local unless it says otherwise."""
    return directory if not directory or "://" in directory else Path(directory).resolve().as_uri()
