"""AMQP decimals as numbers: IEEE 754-2008 in the binary integer encoding, to Decimal and back.

Most of the broker passes decimals on as the bytes they came as; only rules compute with them.
"""

from __future__ import annotations

from decimal import Decimal

from partibus.wire.errors import EncodeError
from partibus.wire.values import Decimal32, Decimal64, Decimal128

# Per width in bytes: bits of the exponent, and what is subtracted from it.
_FORMATS = {4: (8, 101), 8: (10, 398), 16: (14, 6176)}
_DIGITS_128 = 34


def decimal_of(encoded: Decimal32 | Decimal64 | Decimal128) -> Decimal | None:
    """The number; None for infinities and what is no number."""
    exponent_bits, bias = _FORMATS[len(encoded)]
    width = 8 * len(encoded)
    bits = int.from_bytes(encoded, "big")
    negative = bits >> (width - 1)
    combination = (bits >> (width - 5)) & 0b1111
    if combination == 0b1111:
        return None
    if combination >> 2 == 0b11:
        # The exponent stands two bits lower, and the coefficient begins with an unwritten 100.
        shift = width - 3 - exponent_bits
        exponent = (bits >> shift) & ((1 << exponent_bits) - 1)
        coefficient = (0b100 << shift) | (bits & ((1 << shift) - 1))
    else:
        shift = width - 1 - exponent_bits
        exponent = (bits >> shift) & ((1 << exponent_bits) - 1)
        coefficient = bits & ((1 << shift) - 1)
    digits = {4: 7, 8: 16, 16: _DIGITS_128}[len(encoded)]
    if coefficient >= 10**digits:
        # The standard reads a coefficient that is too large as zero.
        coefficient = 0
    return Decimal((negative, tuple(map(int, str(coefficient))), exponent - bias))


def decimal128_of(number: Decimal) -> Decimal128:
    """The sixteen bytes of a number. EncodeError where it has more digits than fit."""
    sign, digits, exponent = number.as_tuple()
    _, bias = _FORMATS[16]
    coefficient = int("".join(map(str, digits)) or "0")
    if not isinstance(exponent, int) or coefficient >= 10**_DIGITS_128:
        raise EncodeError(f"{number} is no decimal of {_DIGITS_128} digits")
    if not 0 <= exponent + bias < 3 << 12:
        raise EncodeError(f"{number} is beyond what a decimal holds")
    return Decimal128(
        ((sign << 127) | ((exponent + bias) << 113) | coefficient).to_bytes(16, "big")
    )
