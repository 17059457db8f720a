"""User properties as HTTP headers: what their text says of their type (SPEC 7.5).

Quoted is a text, or a time where it reads as one (RFC 1123); unquoted a truth value or a number.
Headers that HTTP or its middlemen need are never properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import quote, unquote

from partibus.broker.errors import InvalidArgument
from partibus.wire.values import Timestamp

MS_PER_S = 1000
LONG_MAX = 2**63 - 1
# The years 1 to 9999.
_SECOND_MIN, _SECOND_MAX = -62_135_596_800, 253_402_300_799
# What a header's name may hold besides letters and digits; the rest is percent-encoded.
_NAME_SAFE = "!#$&'*+-.^_`|~"
_STANDARD = frozenset(
    """accept accept-charset accept-encoding accept-language authorization brokerproperties
    cache-control connection content-encoding content-language content-length content-type
    cookie date dnt expect forwarded from host if-match if-modified-since if-none-match
    keep-alive max-forwards mime-version origin pragma prefer priority proxy-authorization
    proxy-connection range referer request-id servicebusauthorization
    servicebusdlqsupplementaryauthorization servicebussupplementaryauthorization te
    traceparent tracestate trailer transfer-encoding upgrade upgrade-insecure-requests
    user-agent via warning""".split()  # noqa: SIM905
)
# Of answers: a property of such a name would say something of the answer itself.
_ANSWERS = frozenset(
    """age allow etag expires last-modified location retry-after server set-cookie vary
    www-authenticate""".split()  # noqa: SIM905
)
_STANDARD_PREFIXES = ("sec-", "x-forwarded-", "x-ms-")
_WHOLE = re.compile(r"[+-]?\d{1,19}")
_DECIMAL = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_TIME = re.compile(r"[A-Za-z]{3}, \d{1,2} [A-Za-z]{3} \d{4} \d\d:\d\d:\d\d GMT")


def read_user_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, object]:
    """The user properties among these headers. Raises InvalidArgument for a value of no type."""
    found: dict[str, object] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1")
        if not _is_standard(name):
            found[unquote(name)] = _read(name, raw_value.decode("utf-8", "replace").strip())
    return found


def _is_standard(name: str) -> bool:
    return name.lower() in _STANDARD or name.lower().startswith(_STANDARD_PREFIXES)


def _read(name: str, text: str) -> object:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        inner = text[1:-1].replace('\\"', '"')
        time = read_time(inner)
        return inner if time is None else time
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text) and abs(int(text)) <= LONG_MAX:
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    raise InvalidArgument(
        f"The header {name} is neither quoted text, nor true or false, nor a number: a property "
        'of a message is written as "text", true, 12 or 1.5.'
    )


def read_time(text: str) -> Timestamp | None:
    """A time as HTTP writes it; None where it is none."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return Timestamp(round(parsedate_to_datetime(text).timestamp() * MS_PER_S))
    except (ValueError, OverflowError):
        return None


def write_time(time_ms: int) -> str:
    """A time as HTTP writes it, to the second, as far as calendars go."""
    second = min(max(time_ms // MS_PER_S, _SECOND_MIN), _SECOND_MAX)
    return format_datetime(datetime.fromtimestamp(second, UTC), usegmt=True)


def write_user_headers(properties: dict[str, object]) -> list[tuple[bytes, bytes]]:
    """Properties as headers. What a header cannot carry or would mean otherwise is left out."""
    headers = []
    for name, value in properties.items():
        text = _write(value)
        if name and text is not None and not _is_standard(name) and name.lower() not in _ANSWERS:
            headers.append((quote(name, safe=_NAME_SAFE).encode(), text.encode()))
    return headers


def _write(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Timestamp):
        return f'"{write_time(value)}"'
    if isinstance(value, (int, float)):
        return repr(int(value) if isinstance(value, int) else float(value))
    if value is None or isinstance(value, (bytes, list, dict)):
        return None
    # A line break would end the header.
    text = str(value).replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else " " for each in text) + '"'
