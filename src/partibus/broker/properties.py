"""The properties of entities by their public names: reading and writing them as plain values.

A property table says which public name (LockDuration) is which field (lock_ms), how its value
is spelled, and what range it has. Configuration files, the catalog and the HTTP door all use
these names. Whether the values go together is for descriptions to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from partibus.broker.durations import FOREVER_MS, format_duration, parse_duration
from partibus.broker.errors import Refusal
from partibus.broker.profiles import KILOBYTE

# A plain value, as JSON has them.
Plain = object

INT32_MAX = 2_147_483_647


class InvalidDescription(Refusal):
    """A property has a value that is not allowed here; says which, and what would be."""

    condition = "com.microsoft:argument-error"
    status = 400

    def __init__(
        self, property_name: str, value: Plain, allowed: str, problem: str | None = None
    ) -> None:
        self.property = property_name
        self.value = value
        self.allowed = allowed
        self.problem = problem or f"{value!r} is not allowed; allowed: {allowed}"
        super().__init__(f"{property_name}: {self.problem}")


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its public name, its field, and how its value is read and written."""

    name: str
    field: str
    allowed: str
    # The field's value, or None where the plain value is not allowed.
    read: Callable[[Plain], object]
    write: Callable[[object], Plain]
    # Chosen when the entity is made and never again.
    fixed: bool = False


Table = tuple[Property, ...]


def duration(
    name: str, field: str, least_ms: int, most_ms: int = FOREVER_MS, *, fixed: bool = False
) -> Property:
    """An ISO 8601 duration, kept in milliseconds."""

    def read(value: Plain) -> object:
        ms = parse_duration(value) if isinstance(value, str) else None
        return ms if ms is not None and least_ms <= ms <= most_ms else None

    upper = "" if most_ms == FOREVER_MS else f" to {format_duration(most_ms)}"
    from_text = format_duration(least_ms)
    allowed = f"an ISO 8601 duration, {from_text}{upper or ' or longer'}"
    return Property(name, field, allowed, read, lambda ms: format_duration(_int(ms)), fixed)


def whole(
    name: str, field: str, least: int = 1, most: int = INT32_MAX, *, unit: int = 1
) -> Property:
    """A whole number; kept in smaller units where `unit` says how many make one."""

    def read(value: Plain) -> object:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return _int(value) * unit if fits else None

    allowed = f"a whole number from {least} to {most}"
    return Property(name, field, allowed, read, lambda number: _int(number) // unit)


def flag(name: str, field: str, *, fixed: bool = False) -> Property:
    """True or false."""

    def read(value: Plain) -> object:
        return value if isinstance(value, bool) else None

    return Property(name, field, "true or false", read, lambda value: value, fixed)


def choice(name: str, field: str, values: tuple[str, ...]) -> Property:
    """One of a few words, in the spelling of the first that matches without regard to case."""

    def read(value: Plain) -> object:
        wanted = value.casefold() if isinstance(value, str) else None
        return next((each for each in values if each.casefold() == wanted), None)

    return Property(name, field, ", ".join(values), read, lambda value: value)


def text(name: str, field: str, longest: int) -> Property:
    """Free text up to a length."""

    def read(value: Plain) -> object:
        return value if isinstance(value, str) and len(value) <= longest else None

    return Property(name, field, f"text of at most {longest} characters", read, lambda v: v)


def kilobytes(name: str, field: str, most_kb: int) -> Property:
    """A size given in kilobytes and kept in bytes."""
    return whole(name, field, 1, most_kb, unit=KILOBYTE)


def read_properties(properties: Mapping[str, Plain], table: Table) -> dict[str, object]:
    """Fields and their values. Unknown names and values out of range are refused."""
    known = {each.name: each for each in table}
    fields: dict[str, object] = {}
    for name, value in properties.items():
        found = known.get(name)
        if found is None:
            raise unknown_property(name, value, tuple(known))
        field_value = found.read(value)
        if field_value is None:
            raise InvalidDescription(name, value, found.allowed)
        fields[found.field] = field_value
    return fields


def write_properties(description: object, table: Table) -> dict[str, Plain]:
    """The other way: every property of the table by its public name."""
    return {each.name: each.write(getattr(description, each.field)) for each in table}


def unknown_property(name: str, value: Plain, known: tuple[str, ...]) -> InvalidDescription:
    """There is no property of this name; says which was probably meant, else all there are."""
    lowered = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), lowered, n=1)
    hint = f"did you mean {lowered[close[0]]}?" if close else f"there are {', '.join(known)}"
    return InvalidDescription(name, value, hint, f"there is no such property; {hint}")


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
