"""What the operator says: the settings of `partibus serve`, and the configuration file.

The file has the shape of the vendor emulator's Config.json, with a few keys added. Here its
shape is read: which sections there are, where each stands, and that no key is misspelt. What the
properties of an entity mean and which values they may have is not known here: sections carry them
as plain values, with the path to name when one is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from partibus.json_text import JsonTextError, parse_json_text

AMQP_PORT = 5672
TLS_PORT = 5671
HTTP_PORT = 5300
STORES_DEFAULT = 16
STORES_MAX = 100
NODES_MIN = 2
NODES_MAX = 64
FILE_BYTES_MAX = 16 * 1024 * 1024
PROFILE_NAMES = ("emulator", "basic", "standard", "premium", "unlimited")


def default_nodes() -> int:
    """As many as there are cores, at least two: with one, its death is everybody's."""
    return min(max(NODES_MIN, os.cpu_count() or 1), NODES_MAX)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The settings of `partibus serve`. Each is an option and an environment variable."""

    data: Path
    # Where stores lie, in turn: store k in directory k modulo their number. Empty: in `data`.
    store_dirs: tuple[Path, ...] = ()
    config: Path | None = None
    host: str = "127.0.0.1"
    port: int = AMQP_PORT
    http_port: int = HTTP_PORT
    # None: TLS_PORT beside AMQP_PORT; beside any other port none, because that one speaks TLS too.
    tls_port: int | None = None
    # None: no port of its own for clients that insist on one, such as 443.
    https_port: int | None = None
    # The operator's own certificate and key (None: in the same file); else one is made.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # More names and addresses by which clients reach the broker, for the certificate made here.
    tls_names: tuple[str, ...] = ()
    nodes: int = field(default_factory=default_nodes)
    # None: as many as there are, and STORES_DEFAULT for a new namespace.
    stores: int | None = None
    # The emulator's well-known key and clients without any key are let in.
    dev: bool = False
    log_level: str = "info"
    log_format: str = "text"

    @property
    def ports(self) -> dict[str, int]:
        """The ports to open, by the names of their settings."""
        tls_port = TLS_PORT if self.tls_port is None and self.port == AMQP_PORT else self.tls_port
        wanted = {
            "port": self.port,
            "http_port": self.http_port,
            "tls_port": tls_port,
            "https_port": self.https_port,
        }
        return {name: port for name, port in wanted.items() if port is not None}


class ConfigurationError(Exception):
    """The configuration cannot be used; says where and what would be allowed."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Section:
    """A named part of the file with properties: a queue, topic, subscription or rule."""

    # Where it stands: UserConfig.Namespaces[0].Queues[1]
    path: str
    name: str
    properties: Mapping[str, object]
    # The keys of each access rule, with its path.
    access_rules: tuple[tuple[str, Mapping[str, object]], ...] = ()
    # A topic's subscriptions; a subscription's rules.
    parts: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The namespace that a file describes."""

    path: str
    name: str
    profile: str | None = None
    partitions: int | None = None
    queues: tuple[Section, ...] = ()
    topics: tuple[Section, ...] = ()
    access_rules: tuple[tuple[str, Mapping[str, object]], ...] = ()
    # None: as they are.
    limits: Mapping[str, object] | None = None
    pipelines: tuple[Section, ...] = ()


def read_configuration(path: Path) -> Configuration:
    """The configuration in this file."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError("", f"{path} cannot be read: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigurationError("", f"{path} is longer than {FILE_BYTES_MAX} bytes")
    try:
        return parse_configuration(content)
    except JsonTextError as error:
        raise ConfigurationError("", f"{path} is not JSON: {error}") from error


def parse_configuration(content: bytes) -> Configuration:
    """The configuration in these bytes of JSON; comments and trailing commas are allowed."""
    root = _object("", parse_json_text(content), ("UserConfig",))
    user = _object("UserConfig", root.get("UserConfig"), ("Namespaces", "Logging"))
    _object("UserConfig.Logging", user.get("Logging", {}), ("Type",))
    namespaces = list(_each("UserConfig.Namespaces", user.get("Namespaces")))
    if len(namespaces) != 1:
        raise ConfigurationError(
            "UserConfig.Namespaces", f"there must be one namespace, not {len(namespaces)}"
        )
    return _namespace(*namespaces[0])


def _namespace(path: str, value: object) -> Configuration:
    keys = (
        "Name", "Queues", "Topics", "AuthorizationRules", "Profile", "Partitions", "Limits",
        "Pipelines",
    )  # fmt: skip
    found = _object(path, value, keys)
    profile = found.get("Profile")
    if profile is not None and profile not in PROFILE_NAMES:
        raise ConfigurationError(
            f"{path}.Profile", f"{profile!r} is not allowed; allowed: {', '.join(PROFILE_NAMES)}"
        )
    partitions = found.get("Partitions")
    if partitions is not None and (profile != "premium" or partitions not in (1, 2, 4)):
        raise ConfigurationError(
            f"{path}.Partitions",
            f"{partitions!r} is not allowed; allowed: 1, 2 or 4, with the profile premium",
        )
    return Configuration(
        path=path,
        name=_name(path, found),
        profile=profile,
        partitions=partitions,
        queues=_sections(f"{path}.Queues", found.get("Queues", []), access=True),
        topics=_sections(
            f"{path}.Topics", found.get("Topics", []), ("Subscriptions", "Rules"), access=True
        ),
        access_rules=_access_rules(path, found),
        limits=_object(f"{path}.Limits", found["Limits"]) if "Limits" in found else None,
        pipelines=_sections(f"{path}.Pipelines", found.get("Pipelines", [])),
    )


def _sections(
    path: str, value: object, parts: tuple[str, ...] = (), *, access: bool = False
) -> tuple[Section, ...]:
    """The sections of a list; `parts` names the lists inside each, from the outermost."""
    keys = ["Name", "Properties", *parts[:1], *(["AuthorizationRules"] if access else [])]
    sections = []
    for where, each in _each(path, value):
        found = _object(where, each, keys)
        inner: tuple[Section, ...] = ()
        if parts:
            inner = _sections(f"{where}.{parts[0]}", found.get(parts[0], []), parts[1:])
        properties = _object(f"{where}.Properties", found.get("Properties", {}))
        sections.append(
            Section(where, _name(where, found), properties, _access_rules(where, found), inner)
        )
    return tuple(sections)


def _access_rules(
    path: str, found: Mapping[str, object]
) -> tuple[tuple[str, Mapping[str, object]], ...]:
    keys = ("KeyName", "Rights", "PrimaryKey", "SecondaryKey")
    rules = _each(f"{path}.AuthorizationRules", found.get("AuthorizationRules", []))
    return tuple((where, _object(where, each, keys)) for where, each in rules)


def _name(path: str, found: Mapping[str, object]) -> str:
    name = found.get("Name")
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{path}.Name", "a name is needed here")
    return name


def _object(
    path: str, value: object, keys: tuple[str, ...] | list[str] | None = None
) -> Mapping[str, object]:
    """The value, if it is an object with none but these keys (any keys where None are given)."""
    if not isinstance(value, dict):
        what = "is missing" if value is None else f"is {value!r}"
        raise ConfigurationError(path, f"{what}; an object {{...}} is needed here")
    for key in value:
        if keys is not None and key not in keys:
            place = f"{path}.{key}" if path else key
            raise ConfigurationError(place, f"there is no such key here{_hint(key, keys)}")
    return value


def _hint(key: str, keys: tuple[str, ...] | list[str]) -> str:
    lowered = {each.casefold(): each for each in keys}
    close = get_close_matches(key.casefold(), lowered, n=1)
    if close:
        return f"; did you mean {lowered[close[0]]}?"
    return f"; there are {', '.join(keys)}"


def _each(path: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, list):
        what = "is missing" if value is None else f"is {value!r}"
        raise ConfigurationError(path, f"{what}; a list [...] is needed here")
    for index, each in enumerate(value):
        yield f"{path}[{index}]", each
