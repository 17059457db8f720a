"""api-versions: which there are, and which elements each knows (SPEC 7.1).

A version is compared as text, because it is a year and a month. One that is missing or not well
formed is served as 2017-04.
"""

from __future__ import annotations

import re

from partibus.broker.properties import InvalidDescription

VERSION_DEFAULT = "2017-04"
PARTITIONING_SINCE = "2013-10"

# Elements that came later than the first version, in answers and in what may be asked for.
SINCE = {
    "EnablePartitioning": PARTITIONING_SINCE,
    "EntityAvailabilityStatus": PARTITIONING_SINCE,
    "MaxMessageSizeInKilobytes": "2021-05",
    "IsClientAffine": "2021-05",
    "SqlFilterCount": "2024-05",
    "CorrelationFilterCount": "2024-05",
}
_WELL_FORMED = re.compile(r"(\d{4}-\d{2})(-[a-z]+)?")


def read_version(given: str | None) -> str:
    """The version that a request is served as."""
    match = _WELL_FORMED.fullmatch(given or "")
    return match[1] if match else VERSION_DEFAULT


def knows(version: str, element: str) -> bool:
    """Whether a version has an element."""
    return version >= SINCE.get(element, "")


def check_asked(version: str, element: str, value: object) -> None:
    """Refuse to set what the version does not know (P8); saying no to it is harmless."""
    if not knows(version, element) and value is not False:
        raise InvalidDescription(
            element, value, "", f"needs api-version {SINCE[element]} or later, not {version}"
        )
