"""Decimals in the binary integer encoding of IEEE 754-2008."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.wire.decimals import decimal128_of, decimal_of
from partibus.wire.errors import EncodeError
from partibus.wire.values import Decimal32, Decimal64, Decimal128


@given(st.integers(-(10**34) + 1, 10**34 - 1), st.integers(-6176, 6111))
def test_a_number_comes_back_as_it_was(coefficient: int, exponent: int) -> None:
    number = Decimal((int(coefficient < 0), tuple(map(int, str(abs(coefficient)))), exponent))
    found = decimal_of(decimal128_of(number))
    assert found is not None
    assert found.as_tuple() == number.as_tuple()


@pytest.mark.parametrize(
    ("encoded", "number"),
    [
        (Decimal32.fromhex("32800001"), Decimal(1)),
        (Decimal32.fromhex("b2800001"), Decimal(-1)),
        (Decimal32.fromhex("77f8967f"), Decimal("9999999E90")),
        (Decimal64.fromhex("31c0000000000001"), Decimal(1)),
        (Decimal64.fromhex("31a000000000000f"), Decimal("1.5")),
        (Decimal128.fromhex("30400000000000000000000000000001"), Decimal(1)),
        (Decimal32.fromhex("78000000"), None),
        (Decimal32.fromhex("7c000000"), None),
    ],
)
def test_known_encodings(encoded: Decimal32, number: Decimal | None) -> None:
    assert decimal_of(encoded) == number


@pytest.mark.parametrize("number", ["1" * 35, "1E7000", "1E-7000", "Infinity", "NaN"])
def test_what_does_not_fit_is_refused(number: str) -> None:
    with pytest.raises(EncodeError):
        decimal128_of(Decimal(number))
