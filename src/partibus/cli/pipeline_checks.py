"""`partibus pipeline audit`, `plan` and `report`: jobs that look at messages and change nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from partibus.cli.options import FILE
from partibus.cli.output import show_list
from partibus.cli.pipeline import bar, broker_of, located, session, sourced, sparked
from partibus.pipeline.jobs.errors import Discrepancy

ACCOUNT_COLUMNS = (
    "fragment", "subqueue", "accepted", "completed", "dead_lettered", "expired", "forwarded",
    "discarded", "present", "missing", "read", "captured",
)  # fmt: skip
SPREAD_COLUMNS = (
    "key", "keys", "fragments", "fullest/mean", "idle", "refused worst", "refused mean",
)  # fmt: skip


@click.command("audit")
@click.argument("entity")
@click.option("--capture", default="", help="Compare with a capture of it: its directory.")
@click.option("--all-captured", is_flag=True, help="The capture must have every message ever sent.")
@click.option("--report", type=FILE, help="Also write the accounts to this file, as JSON.")
@sparked
def audit_command(
    entity: str,
    capture: str,
    all_captured: bool,
    report: Path | None,
    master: str,
    output: str,
    **options: Any,
) -> None:
    """Prove that every message that ENTITY accepted is accounted for, fragment by fragment.

    Ends with exit code 10 where something is missing.
    """
    if all_captured and not capture:
        raise click.UsageError("--all-captured needs --capture")
    broker = broker_of(options)
    with bar() as progress, session("audit", master) as spark:
        from partibus.pipeline.jobs.audit import audit

        found = audit(
            spark,
            broker,
            entity,
            capture=located(capture),
            all_captured=all_captured,
            progress=progress,
        )
    whole = {**asdict(found), "totals": found.totals, "clean": found.is_clean}
    if report is not None:
        report.write_text(json.dumps(whole, indent=2) + "\n")
    if output == "json":
        click.echo(json.dumps(whole, indent=2))
    else:
        show_list([asdict(each) for each in found.accounts], ACCOUNT_COLUMNS, output)
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
        for each in found.discrepancies:
            click.echo(f"wrong: {each}", err=True)
    if not found.is_clean:
        raise Discrepancy(f"'{found.entity}' is not in order: {found.discrepancies[0]}")
    click.echo(f"'{found.entity}' is in order: all accepted messages are accounted for", err=True)


@click.command("plan")
@sourced
@click.option("--key", "keys", multiple=True, help="A candidate: a SQL expression. Repeat it.")
@click.option(
    "--fragments",
    "counts",
    type=click.IntRange(1, 1024),
    multiple=True,
    help="A number of fragments. Repeat it; 2, 4 and 16 where none is given.",
)
@click.option("--duplicates", is_flag=True, help="As where duplicates are detected.")
@sparked
def plan_command(
    parquet: str,
    entity: str,
    keys: tuple[str, ...],
    counts: tuple[int, ...],
    duplicates: bool,
    master: str,
    output: str,
    **options: Any,
) -> None:
    """Show how traffic would spread over fragments by this or that key, and recommend one."""
    if bool(parquet) == bool(entity):
        raise click.UsageError("give --parquet or --entity")
    with bar() as progress, session("plan", master) as spark:
        from partibus.pipeline.jobs.plan import FRAGMENTS, plan
        from partibus.pipeline.jobs.rows import captured, present

        frame = (
            captured(spark, located(parquet))
            if parquet
            else present(spark, broker_of(options), entity)
        )
        found = plan(
            frame,
            keys=keys,
            fragments=counts or FRAGMENTS,
            detects_duplicates=duplicates,
            progress=progress,
        )
    if output == "json":
        click.echo(json.dumps(asdict(found), indent=2))
        return
    rows = [
        {
            "key": each.key,
            "keys": each.keys,
            "fragments": spread.fragments,
            "fullest/mean": f"{spread.skew:.2f}",
            "idle": spread.idle,
            "refused worst": f"{spread.refused_worst:.1%}",
            "refused mean": f"{spread.refused_mean:.1%}",
        }
        for each in found.candidates
        for spread in each.spreads
    ]
    show_list(rows, SPREAD_COLUMNS, output)
    hot = [
        {"key": each.key, "value": value, "messages": messages}
        for each in found.candidates
        for value, messages in each.hot[:3]
    ]
    if hot:
        show_list(hot, ("key", "value", "messages"), output)
    advice = (
        f"{found.fragments} fragments, key: {found.key}" if found.partitioned else "conventional"
    )
    click.echo(f"recommended: {advice}")
    for reason in found.reasons:
        click.echo(f"- {reason}")


@click.command("report")
@sourced
@click.option("--dead-letters", default="", help="A capture of the dead letters: its directory.")
@click.option("--html", type=FILE, default="report.html", show_default=True, help="The page.")
@click.option("--json", "json_file", type=FILE, help="Also write the numbers to this file.")
@sparked
def report_command(
    parquet: str,
    entity: str,
    dead_letters: str,
    html: Path,
    json_file: Path | None,
    master: str,
    output: str,
    **options: Any,
) -> None:
    """Write a page with plots: skew, hot keys, arrivals, latency, reasons of dead letters.

    Of an entity, its dead letters are looked at as well.
    """
    if bool(parquet) == bool(entity):
        raise click.UsageError("give --parquet or --entity")
    with bar() as progress, session("report", master) as spark:
        from partibus.pipeline.jobs.report import report
        from partibus.pipeline.jobs.report_page import page
        from partibus.pipeline.jobs.rows import DEAD_LETTERS, captured, present

        if parquet:
            frame = captured(spark, located(parquet))
            dead = captured(spark, located(dead_letters)) if dead_letters else None
        else:
            broker = broker_of(options)
            frame = present(spark, broker, entity)
            is_dead = entity.lower().endswith(DEAD_LETTERS)
            dead = frame if is_dead else present(spark, broker, entity + DEAD_LETTERS)
        found = report(frame, entity or parquet, dead_letters=dead, progress=progress)
    html.write_text(page(found))
    if json_file is not None:
        json_file.write_text(json.dumps(found.as_json(), indent=2) + "\n")
    if output == "json":
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        click.echo(
            f"{found.messages} messages in {len(found.fragments)} fragments, the fullest with "
            f"{found.skew:.2f} times the mean: {html}"
        )
