"""JSON as people write it: with // and /* */ comments and a comma after the last item.

Comments and such commas are blanked, never removed, so that an error still names the line and
column in the file. A key that appears twice in one object is refused: one of its values would
be dropped without a word.
"""

from __future__ import annotations

import json
import re

# Strings are matched too, so that what looks like a comment or comma inside one is passed over.
# What is never closed is matched to its end, so that no text is gone through more than once.
_STRING = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT = re.compile(rf"(?P<string>{_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"(?P<string>{_STRING})|,(?=\s*[\]}}])")
_NOT_LINE_END = re.compile(r"[^\n]")


class JsonTextError(Exception):
    """The text is not JSON; says at which line and column, where it knows."""


def parse_json_text(content: bytes) -> object:
    """The value that these bytes of UTF-8 hold."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonTextError(f"byte {error.start} is not UTF-8") from error
    plain = _LAST_COMMA.sub(_blanked, _COMMENT.sub(_blanked, text))
    try:
        return json.loads(plain, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise JsonTextError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise JsonTextError("it is nested too deeply") from error


def _blanked(match: re.Match[str]) -> str:
    return match[0] if match["string"] else _NOT_LINE_END.sub(" ", match[0])


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise JsonTextError(f"the key {key!r} appears twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> object:
    raise JsonTextError(f"{name} is not a JSON value")
