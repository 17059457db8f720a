"""XML from strangers: bounded, without entities, never reaching outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.errors import InvalidArgument
from partibus.management.atom.xml_text import DEPTH_MAX, ELEMENTS_MAX, INSTANCE, parse, tag, text
from partibus.management.refusals import UNPRINTABLE

BOMB = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">
<!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
<!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">]>
<entry>&lol3;</entry>"""
OUTSIDE = b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>'
PARAMETER = b'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x">%p;]><x/>'


@pytest.mark.parametrize("body", [BOMB, OUTSIDE, PARAMETER, b'<!DOCTYPE x SYSTEM "y"><x/>'])
def test_a_document_type_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="DOCTYPE"):
        parse(body)


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"<a>", b"<a></b>", b"<a>&none;</a>", b"\x00",
     b'<?xml version="1.0" encoding="?"?>', b'<?xml version="1.0" encoding="nonsense"?><a/>',
     b"<a/><b/>", b"<a b='1' b='2'/>"],
)  # fmt: skip
def test_what_is_not_well_formed_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        parse(body)


def test_depth_and_number_of_elements_are_bounded() -> None:
    deep = b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX
    parse(deep)
    with pytest.raises(InvalidArgument, match="deeper"):
        parse(b"<a>" + deep + b"</a>")
    with pytest.raises(InvalidArgument, match="elements"):
        parse(b"<a>" + b"<b/>" * ELEMENTS_MAX + b"</a>")


def test_names_are_local_whatever_the_prefix() -> None:
    root = parse(
        f'<n:a xmlns:n="urn:x" xmlns:q="{INSTANCE}"><n:b q:type="p:Kind" type="t"/>'
        f'<b q:nil="true">x</b></n:a>'.encode()
    )
    first, second = root.each("b")
    assert (root.name, root.namespace) == ("a", "urn:x")
    assert (first.type, first.attributes["type"]) == ("Kind", "t")
    assert (second.is_nil, root.text_of("b")) == (True, "")


@given(st.text(st.characters()))
def test_what_is_written_can_be_read(value: str) -> None:
    root = parse(tag("a", text("b", value), x=value).encode())
    cleaned = value.translate(UNPRINTABLE)
    assert (root.text_of("b") or "").replace("\r\n", "\n") == cleaned.replace("\r\n", "\n").replace(
        "\r", "\n"
    )
