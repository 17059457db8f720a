"""Bodies in JSON: small, and of a shape that is known."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from partibus.broker.errors import InvalidArgument
from partibus.management.calls import Call

BODY_BYTES_MAX = 16 * 1024

T = TypeVar("T")


async def read_json(call: Call, shape: type[T]) -> T:
    """The body as a value of this shape; an empty one is an empty object."""
    body = await call.body(BODY_BYTES_MAX)
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"The body is not the JSON that is needed here: {error}.") from error
