"""The results as a table to read and as JSON to compute with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.endurance import Backlog, Idle
from benchmarks.load.plan import RATED, RECEIVE, SEND
from benchmarks.matrix import Cell, Result
from benchmarks.measure import BUSY_SHARE, Sample
from benchmarks.subjects import CONVENTIONAL
from benchmarks.targets import Target

# The last few messages may take this long before it is worth a word.
REST_S_MAX = 0.5

# What others may use of the machine before rates and latencies say little.
QUIET_CORES_MAX = 0.2
NOISY = (
    "- **the machine was not quiet**: CPU per message holds, but ratios of rates and latencies do"
    " not; a broker that uses all cores suffers more from others than one that uses a single core"
)


@dataclass
class Run:
    """Everything one run has found."""

    facts: dict[str, str]
    rival: str
    results: list[Result] = field(default_factory=list)
    sdk: dict[str, Sample] = field(default_factory=dict)
    backlogs: list[Backlog] = field(default_factory=list)
    idles: list[Idle] = field(default_factory=list)
    targets: dict[str, list[Target]] = field(default_factory=dict)


def write(run: Run, path: Path) -> None:
    """Write path.md and path.json."""
    sections = [
        _head(run),
        *(_targets(title, each) for title, each in run.targets.items() if each),
        _pipelined(run),
        _single(run),
        _sdk(run),
        _endurance(run),
    ]
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".md").write_text("\n\n".join(filter(None, sections)) + "\n")
    path.with_suffix(".json").write_text(json.dumps(asdict(run), indent=1) + "\n")


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _head(run: Run) -> str:
    facts = [f"- {name}: {value}" for name, value in run.facts.items()]
    samples = [sample for result in run.results for sample in result.samples]
    if samples:
        loads = sorted(sample.other_load for sample in samples)
        shown = f"median {loads[len(loads) // 2]:.2f}, worst {loads[-1]:.2f} cores"
        facts.append(f"- load by other processes of the machine meanwhile: {shown}")
        if loads[len(loads) // 2] > QUIET_CORES_MAX:
            facts.append(NOISY)
    return "# Benchmark results\n\n" + "\n".join(facts)


def _targets(title: str, targets: list[Target]) -> str:
    rows = []
    for each in targets:
        bound = "at least" if each.at_least else "at most"
        verdict = "reached" if each.reached else "**not reached**"
        value, limit = f"{each.value:.2f}{each.unit}", f"{bound} {each.limit:g}{each.unit}"
        rows.append([each.text, value, limit, verdict])
    reached = sum(each.reached for each in targets)
    columns = ["figure", "measured", "to reach", ""]
    return f"## {title}: {reached} of {len(targets)} reached\n\n{table(columns, rows)}"


def _cells(run: Run, *, pipelined: bool) -> list[tuple[Cell, list[str]]]:
    """The cells of this manner, each with the subjects measured in it, as they came."""
    found: dict[Cell, dict[str, None]] = {}
    for result in run.results:
        if result.cell.pipelined == pipelined:
            found.setdefault(result.cell, {})[result.subject] = None
    return [(cell, list(subjects)) for cell, subjects in found.items()]


def _lookup(run: Run, subject: str, cell: Cell, operation: str) -> Result | None:
    for each in run.results:
        if (each.subject, each.cell, each.operation) == (subject, cell, operation):
            return each
    return None


def _shown(result: Result, field_name: str, digits: int) -> str:
    low, high = result.spread(field_name)
    middle = f"{result.median(field_name):,.{digits}f}"
    return middle if low == high else f"{middle} ({low:,.{digits}f}-{high:,.{digits}f})"


def _pipelined(run: Run) -> str:
    rows = []
    for cell, subjects in _cells(run, pipelined=True):
        peer_cell = Cell(CONVENTIONAL, cell.size, 0, True)
        for subject in subjects:
            row = [cell.label, subject]
            for operation in (SEND, RECEIVE):
                result = _lookup(run, subject, cell, operation)
                peer = _lookup(run, run.rival, peer_cell, operation)
                row += _throughput_columns(result, peer)
            rows.append(row)
    if not rows:
        return ""
    columns = ["messages", "broker"]
    for verb in ("send", "receive"):
        columns += [f"{verb}/s", "x", f"{verb} CPU us", "x", "p50 / p99 ms", "load us"]
    note = (
        "Median of the rounds (least-most). x is the ratio to RabbitMQ's conventional queue with"
        " messages of that size. `load us` is what the load process cost; * where it used more than"
        f" {BUSY_SHARE:.0%} of a core and may be what limits the rate."
    )
    return f"## Pipelined\n\n{note}\n\n{table(columns, rows)}\n\n{_rests(run)}"


def _rests(run: Run) -> str:
    """Where the last few messages were long in coming."""
    slow = [each for each in run.results if each.median("rest_s") > REST_S_MAX]
    shown = [
        f"{each.subject}, {each.operation}, {each.cell.label}"
        f"{'' if each.cell.pipelined else ', one in flight'}: {each.median('rest_s'):.1f} s"
        for each in slow
    ]
    head = f"The rate is that of the first {RATED:.0%}. The rest took over {REST_S_MAX} s in:"
    return "\n".join([head, "", *(f"- {each}" for each in shown or ["no case"])])


def _throughput_columns(result: Result | None, peer: Result | None) -> list[str]:
    if result is None:
        return ["-"] * 6
    busy = "*" if result.median("generator_share") > BUSY_SHARE else ""
    return [
        _shown(result, "rate", 0),
        _times(result, peer, "rate"),
        _shown(result, "cpu_us", 1),
        _times(result, peer, "cpu_us"),
        f"{result.median('p50_ms'):.1f} / {result.median('p99_ms'):.1f}",
        f"{result.median('generator_us'):.1f}{busy}",
    ]


def _times(result: Result, peer: Result | None, field_name: str) -> str:
    return f"{result.median(field_name) / peer.median(field_name):.2f}" if peer else "-"


def _single(run: Run) -> str:
    rows = []
    for cell, subjects in _cells(run, pipelined=False):
        for subject in subjects:
            row = [cell.label, subject]
            for operation in (SEND, RECEIVE):
                result = _lookup(run, subject, cell, operation)
                fields = (("p50_ms", 2), ("p99_ms", 2), ("rate", 0), ("cpu_us", 0))
                row += [_shown(result, *each) if result else "-" for each in fields]
            rows.append(row)
    if not rows:
        return ""
    columns = ["messages", "broker"]
    for verb in ("send", "receive"):
        columns += [f"{verb} p50 ms", "p99 ms", "per s", "CPU us"]
    return f"## One message in flight, one connection\n\n{table(columns, rows)}"


def _sdk(run: Run) -> str:
    rows = [
        [
            name,
            f"{each.rate:,.0f}",
            f"{each.cpu_us:.0f}",
            f"{each.p50_ms:.1f} / {each.p99_ms:.1f}",
            f"{each.generator_us:.0f} ({each.generator_share:.0%} of a core)",
        ]
        for name, each in run.sdk.items()
    ]
    if not rows:
        return ""
    columns = ["load", "per s", "broker CPU us", "p50 / p99 ms", "SDK CPU us"]
    note = "One process of the SDK; it is what limits the rate where it uses a whole core."
    return f"## Through the official Python SDK (asyncio)\n\n{note}\n\n{table(columns, rows)}"


def _endurance(run: Run) -> str:
    parts = []
    for each in run.backlogs:
        rows = [
            [
                operation,
                f"{each.empty[operation].cpu_us:.1f}",
                f"{each.deep[operation].cpu_us:.1f}",
                f"{each.empty[operation].rate:,.0f}",
                f"{each.deep[operation].rate:,.0f}",
            ]
            for operation in (SEND, RECEIVE)
        ]
        columns = ["", "CPU us, empty", "CPU us, backlog", "per s, empty", "per s, backlog"]
        title = f"## A backlog of {each.messages:,} messages of 1 KB, {each.queue}"
        facts = (
            f"Largest node {each.node_rss_mb:.0f} MB; ready {each.restart_s:.2f} s after a restart,"
            f" {each.restart_after_kill_s:.2f} s after SIGKILL."
        )
        parts.append(f"{title}\n\n{facts}\n\n{table(columns, rows)}")
    if run.idles:
        idle_rows = [
            [each.subject, f"{each.core_share:.2%}", f"{each.rss_mb:.0f}", str(each.processes)]
            for each in run.idles
        ]
        columns = ["broker", "of a core", "MB", "processes"]
        parts.append(f"## Idle\n\n{table(columns, idle_rows)}")
    return "\n\n".join(parts)
