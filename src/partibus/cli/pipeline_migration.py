"""`partibus pipeline migrate`: a queue to another partitioning, under its own name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from partibus.cli.output import show_one
from partibus.cli.pipeline import bar, broker_of, session, sparked


@click.command("migrate")
@click.argument("queue")
@click.option(
    "--to",
    type=click.Choice(["partitioned", "conventional"]),
    required=True,
    help="What it is to be.",
)
@click.option("--state", required=True, help="A directory that lets it go on where it was.")
@click.option("--leave-deferred", is_flag=True, help="Let deferred messages stay in QUEUE.before.")
@click.option(
    "--accept-differences", is_flag=True, help="Swap although what arrived is not what was there."
)
@click.option("--undo", is_flag=True, help="Take back a migration that is not over.")
@sparked
def migrate_command(
    queue: str,
    to: str,
    state: str,
    leave_deferred: bool,
    accept_differences: bool,
    undo: bool,
    master: str,
    output: str,
    **options: Any,
) -> None:
    """Make QUEUE partitioned or conventional, with all its messages.

    Clients find it disabled while its messages are moved and verified. Run again after an
    interruption, it goes on; with --undo it goes back, and QUEUE is itself again. Run again when it
    is over, it deletes QUEUE.before once that is empty.
    """
    if undo and accept_differences:
        raise click.UsageError("--undo and --accept-differences do not go together")
    broker = broker_of(options)
    with bar() as progress, session("migrate", master) as spark:
        from partibus.pipeline.jobs.migrate import migrate, undo_migration

        partitioned = to == "partitioned"
        try:
            if undo:
                done = undo_migration(
                    spark, broker, queue, partitioned=partitioned, state=state, progress=progress
                )
            else:
                done = migrate(
                    spark,
                    broker,
                    queue,
                    partitioned=partitioned,
                    state=state,
                    leave_deferred=leave_deferred,
                    accept_differences=accept_differences,
                    progress=progress,
                )
        except KeyboardInterrupt:
            click.echo(
                "interrupted: run the same command again to go on, or with --undo to go back",
                err=True,
            )
            raise
    shown = ("entity", "partitioned", "step", "messages", "old", "left", "notes")
    show_one({name: value for name, value in asdict(done).items() if name in shown}, output)
    if done.left:
        left = ", ".join(f"{number} {what}" for what, number in done.left.items())
        click.echo(
            f"'{done.old}' stays, with {left}; docs/PIPELINE.md says how they follow", err=True
        )
