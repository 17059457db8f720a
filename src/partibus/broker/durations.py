"""ISO 8601 durations, as configuration files and descriptions spell them, in milliseconds.

The vendor's largest duration (P10675199DT2H48M5.4775807S) means "never" or "for ever". Clients
round it in different ways, so everything from 10,675,199 days up is FOREVER_MS.
"""

from __future__ import annotations

import re

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

FOREVER_MS = 922_337_203_685_477
FOREVER_TEXT = "P10675199DT2H48M5.4775807S"
_FOREVER_DAYS_MS = 10_675_199 * DAY_MS

# At most this many digits a part: enough for every duration there is, and cheap to refuse.
_DIGITS = r"\d{1,12}"
_PATTERN = re.compile(
    rf"P(?=[\dT])(?:({_DIGITS})Y)?(?:({_DIGITS})M)?(?:({_DIGITS})D)?"
    rf"(?:T(?=\d)(?:({_DIGITS})H)?(?:({_DIGITS})M)?(?:({_DIGITS})(?:\.(\d{{1,12}}))?S)?)?",
    re.ASCII,
)
# .NET counts a year as 365 days and a month as 30.
_UNITS_MS = (365 * DAY_MS, 30 * DAY_MS, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)


def parse_duration(text: str) -> int | None:
    """The milliseconds of a duration such as PT1M or P14D; None where the text is not one."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    *whole, fraction = match.groups()
    total = sum(int(part) * unit for part, unit in zip(whole, _UNITS_MS, strict=True) if part)
    total += int((fraction or "").ljust(3, "0")[:3])
    return FOREVER_MS if total >= _FOREVER_DAYS_MS else total


def format_duration(ms: int) -> str:
    """The shortest spelling that clients of the vendor write themselves."""
    assert ms >= 0
    if ms >= _FOREVER_DAYS_MS:
        return FOREVER_TEXT
    days, rest = divmod(ms, DAY_MS)
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    seconds, fraction = divmod(rest, SECOND_MS)
    clock = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes)
    if fraction:
        clock += f"{seconds}.{fraction:03}".rstrip("0") + "S"
    elif seconds:
        clock += f"{seconds}S"
    if not days and not clock:
        return "PT0S"
    return "P" + f"{days}D" * bool(days) + (f"T{clock}" if clock else "")
