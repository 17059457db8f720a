"""Every refusal has a status and a SubCode that clients understand."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from partibus.broker import errors
from partibus.broker.access import TokenMalformed
from partibus.broker.properties import InvalidDescription
from partibus.management.refusals import BodyTooLarge, MethodNotAllowed, code_of, error_body


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (InvalidDescription("LockDuration", "x", "y"), (400, 40000)),
        (errors.InvalidOperation("no"), (400, 40000)),
        (errors.Unauthorized("no right"), (401, 40100)),
        (TokenMalformed("MalformedToken: no"), (401, 40105)),
        (errors.QuotaExceeded("full"), (403, 40300)),
        (errors.EntityDisabled("off"), (403, 40300)),
        (errors.EntityNotFound("none"), (404, 40400)),
        (MethodNotAllowed("PATCH", ("GET",)), (405, 40500)),
        (errors.EntityAlreadyExists("there"), (409, 40900)),
        (errors.MessageLockLost("late"), (410, 41000)),
        (BodyTooLarge(5), (413, 41300)),
        (errors.Refusal("?"), (500, 50000)),
        (errors.FragmentUnavailable("down"), (503, 50004)),
    ],
)
def test_a_refusal_has_a_status_and_a_subcode(
    refusal: errors.Refusal, code: tuple[int, int]
) -> None:
    assert code_of(refusal) == code


def test_an_error_body_is_xml_whatever_the_text_quotes() -> None:
    body = error_body(400, "SubCode=40000. '<x>' & \x00\x1f are not allowed.")
    root = ElementTree.fromstring(body)
    assert (root.tag, [each.tag for each in root]) == ("Error", ["Code", "Detail"])
    assert "'<x>' & " in (root[1].text or "")
