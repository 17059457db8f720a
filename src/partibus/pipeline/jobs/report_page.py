"""A report as one HTML page with its plots inside: no script, nothing fetched from elsewhere.

Everything that comes from messages is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from partibus.pipeline.jobs.report import Report

WIDTH, HEIGHT = 720, 180
ROW_HEIGHT = 22
LABEL_WIDTH = 220
LABEL_MAX = 34
AXIS = 20

_STYLE = """
:root { color-scheme: light dark; --bar: #3b76c4; --ink: #1c1e21; --soft: #6a7078; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --bar: #6ea3ea; --ink: #e8eaed; --soft: #9aa0a8; --page: #17191c; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 760px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.soft, figcaption { color: var(--soft); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg rect { fill: var(--bar); } svg .soft { fill: var(--soft); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .5rem; }
dt { color: var(--soft); } dd { margin: 0; font-size: 1.25rem; }
figure { margin: 0; }
"""


def page(report: Report) -> str:
    """The whole page."""
    what = "How long messages have waited" if report.latency_is_age else "From arrival to capture"
    parts = [
        f"<h1>{escape(report.source)}</h1>",
        f'<p class="soft">{_time(report.first_s)} to {_time(report.last_s)}</p>'
        if report.messages
        else '<p class="soft">There are no messages.</p>',
        _numbers(report),
        _section("Messages by fragment", _fragments(report), f"Gini {report.gini:.2f}"),
        _section("Hot keys", _hot_keys(report), f"{report.keys} keys, {report.keyless} messages "
                 "without one"),
        _section("Arrivals", _arrivals(report), f"a bar is {_span(report.arrival_width_s)}"),
        _section(what, _latencies(report), _percentiles(report)),
        _section("Dead letters by reason", _dead(report), ""),
    ]  # fmt: skip
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.source)}: messages</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _numbers(report: Report) -> str:
    shown = {
        "messages": f"{report.messages:,}",
        "bytes": f"{report.bytes:,}",
        "fragments": str(len(report.fragments)),
        "fullest / mean": f"{report.skew:.2f}",
        "dead letters": f"{sum(each['messages'] for each in report.dead_letters):,}",
    }
    return f"<dl>{''.join(f'<div><dt>{k}</dt><dd>{v}</dd></div>' for k, v in shown.items())}</dl>"


def _section(title: str, plot: str, caption: str) -> str:
    inner = plot or '<p class="soft">none</p>'
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f"<h2>{escape(title)}</h2><figure>{inner}{below}</figure>"


def _fragments(report: Report) -> str:
    return columns([(str(each["fragment"]), each["messages"]) for each in report.fragments])


def _hot_keys(report: Report) -> str:
    return rows([(str(each["key"]), each["messages"]) for each in report.hot_keys])


def _arrivals(report: Report) -> str:
    if not report.arrivals:
        return ""
    width = report.arrival_width_s
    known = {each["from_s"]: each["messages"] for each in report.arrivals}
    first, last = min(known), max(known)
    times = range(first, last + width, width)
    # A name under the first, the middle and the last bar.
    named = {first, times[len(times) // 2], last}
    return columns(
        [(_time(at) if at in named else "", known.get(at, 0)) for at in times],
        [_time(t) for t in times],
    )


def _latencies(report: Report) -> str:
    spans = [
        "more" if each["upto_s"] is None else _span(each["upto_s"]) for each in report.latencies
    ]
    # Without spaces they have room beside each other.
    names = [each.replace(" ", "") for each in spans]
    messages = [each["messages"] for each in report.latencies]
    titles = [each if each == "more" else f"up to {each}" for each in spans]
    return columns(list(zip(names, messages, strict=True)), titles)


def _dead(report: Report) -> str:
    return rows([(str(each["reason"]), each["messages"]) for each in report.dead_letters])


def _percentiles(report: Report) -> str:
    found = ", ".join(f"{name} {_span(value)}" for name, value in report.latency.items())
    return f"a bar is up to the time below it; {found}" if found else ""


def columns(bars: Sequence[tuple[str, int]], titles: Sequence[str] | None = None) -> str:
    """Upright bars with names below."""
    if not bars:
        return ""
    most = max(number for _, number in bars) or 1
    step = WIDTH / len(bars)
    shapes = []
    for at, (name, number) in enumerate(bars):
        tall = number / most * (HEIGHT - 2 * AXIS)
        left, top = at * step, HEIGHT - AXIS - tall
        title = titles[at] if titles else name
        shapes.append(
            f'<rect x="{left + step * 0.1:.1f}" y="{top:.1f}" width="{step * 0.8:.1f}" '
            f'height="{tall:.1f}"><title>{escape(title)}: {number:,}</title></rect>'
        )
        if name:
            anchor = "start" if at == 0 else "end" if at == len(bars) - 1 else "middle"
            where = left if at == 0 else left + step if at == len(bars) - 1 else left + step / 2
            place = f'x="{where:.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}"'
            shapes.append(f"<text {place}>{escape(name)}</text>")
    shapes.append(f'<text class="soft" x="0" y="{AXIS - 6}">{most:,}</text>')
    return _svg(HEIGHT, shapes)


def rows(bars: Sequence[tuple[str, int]]) -> str:
    """Lying bars with names before them."""
    if not bars:
        return ""
    most = max(number for _, number in bars) or 1
    shapes = []
    for at, (name, number) in enumerate(bars):
        top = at * ROW_HEIGHT
        wide = number / most * (WIDTH - LABEL_WIDTH - 80)
        short = name if len(name) <= LABEL_MAX else name[: LABEL_MAX - 1] + "…"
        shapes += [
            f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{escape(short)}'
            f"<title>{escape(name)}</title></text>",
            f'<rect x="{LABEL_WIDTH}" y="{top + 3}" width="{wide:.1f}" height="{ROW_HEIGHT - 6}"/>',
            f'<text class="soft" x="{LABEL_WIDTH + wide + 6:.1f}" y="{top + 15}">{number:,}</text>',
        ]
    return _svg(len(bars) * ROW_HEIGHT, shapes)


def _svg(height: int, shapes: list[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(shapes)}</svg>'


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _span(span_s: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if span_s >= size:
            return f"{span_s / size:.3g} {unit}"
    return f"{span_s:.3g} s" if span_s >= 1 else f"{span_s * 1000:.3g} ms"
