"""XML in and out: a small tree from untrusted bytes, and elements as text.

A document type is refused, so there are no entities that could grow or reach outside; depth and
number of elements are bounded. What the elements mean is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from partibus.broker.errors import InvalidArgument
from partibus.management.refusals import UNPRINTABLE

DEPTH_MAX = 32
# The largest description has a few hundred; building more would keep others waiting.
ELEMENTS_MAX = 1_000
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_SEPARATOR = " "


@dataclass(slots=True)
class Element:
    """One element: its local name, its namespace, and what is in it."""

    name: str
    namespace: str
    # By local name; `i:type` and `i:nil` under "i:type" and "i:nil".
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def child(self, name: str) -> Element | None:
        """The first child of this name, in whatever namespace."""
        return next(self.each(name), None)

    def each(self, name: str) -> Iterator[Element]:
        """All children of this name."""
        return (child for child in self.children if child.name == name)

    def text_of(self, name: str) -> str | None:
        """The text of a child; None where there is none, or it says that it is nil."""
        found = self.child(name)
        return None if found is None or found.is_nil else found.text

    @property
    def is_nil(self) -> bool:
        """Whether it stands for nothing."""
        return self.attributes.get("i:nil") in ("true", "1")

    @property
    def type(self) -> str:
        """The local name of its `i:type`."""
        return self.attributes.get("i:type", "").rpartition(":")[2]


def parse(body: bytes) -> Element:
    """The root of a document; refused where it is not well-formed, or has a document type."""
    tree = _Tree()
    try:
        tree.parser.Parse(body, True)
    except expat.ExpatError as error:
        raise InvalidArgument(f"The body is not well-formed XML: {error}.") from error
    except (LookupError, ValueError) as error:
        # An encoding that is none.
        raise InvalidArgument(f"The body cannot be read: {error}.") from error
    assert tree.root is not None
    return tree.root


class _Tree:
    """Builds the tree while the parser runs."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0
        self.parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def _doctype(self, *_: object) -> None:
        raise InvalidArgument("A document type (<!DOCTYPE …>) is not allowed.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= DEPTH_MAX or self._count > ELEMENTS_MAX:
            raise InvalidArgument(
                f"The body has more than {ELEMENTS_MAX} elements or is nested deeper than "
                f"{DEPTH_MAX}."
            )
        namespace, _, local = name.rpartition(_SEPARATOR)
        element = Element(local, namespace, {_attribute(k): v for k, v in attributes.items()})
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].text += text


def _attribute(name: str) -> str:
    namespace, _, local = name.rpartition(_SEPARATOR)
    return f"i:{local}" if namespace == INSTANCE else local


def tag(name: str, *inner: str, **attributes: str) -> str:
    """An element around what is XML already; `i_type` is the attribute `i:type`."""
    said = "".join(
        f" {key.replace('_', ':')}={quoteattr(value.translate(UNPRINTABLE))}"
        for key, value in attributes.items()
    )
    content = "".join(inner)
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def text(name: str, value: object, **attributes: str) -> str:
    """An element around a value; true and false in small letters."""
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    return tag(name, escape(plain.translate(UNPRINTABLE)), **attributes)
