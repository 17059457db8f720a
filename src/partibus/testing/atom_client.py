"""Entity management as curl would do it: entries in, status and elements out."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

from partibus.management.atom.description_xml import SERVICE
from partibus.management.atom.documents import ATOM
from partibus.management.atom.xml_text import INSTANCE, Element, parse
from partibus.testing.http_world import World

VERSION = "2024-05"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def root(self) -> Element:
        """The body as a tree."""
        return parse(self.body.encode())

    @property
    def description(self) -> dict[str, str]:
        """The texts of the one description's elements, in order."""
        content = self.root.child("content")
        assert content is not None, self.body
        return {each.name: each.text for each in content.children[0].children}

    @property
    def titles(self) -> list[str]:
        """The names in a feed."""
        return [each.text_of("title") or "" for each in self.root.each("entry")]

    @property
    def detail(self) -> str:
        """What an error says."""
        return self.root.text_of("Detail") or ""


def entry(kind: str, inner: str = "", **elements: object) -> bytes:
    """An Atom entry with one description of these elements."""
    plain = "".join(f"<{name}>{escape(str(v))}</{name}>" for name, v in elements.items())
    described = f'<{kind} xmlns="{SERVICE}" xmlns:i="{INSTANCE}">{plain}{inner}</{kind}>'
    content = f'<content type="application/xml">{described}</content>'
    return f'<entry xmlns="{ATOM}">{content}</entry>'.encode()


def queue(inner: str = "", **elements: object) -> bytes:
    """An entry that describes a queue."""
    return entry("QueueDescription", inner, **elements)


async def ask(
    world: World,
    method: str,
    path: str,
    body: bytes = b"",
    version: str | None = VERSION,
    **headers: str,
) -> Answer:
    """One request with the root key."""
    headers.setdefault("Authorization", world.token())
    separator = "&" if "?" in path else "?"
    query = f"{separator}api-version={version}" if version else ""
    return Answer(*await world.ask(method, f"{path}{query}", body, **headers))
