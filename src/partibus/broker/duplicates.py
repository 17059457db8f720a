"""What makes two messages the same one, and how long that is remembered (SPEC 1.11, 6.8).

A message is known by its id; on a partitioned entity by its id and its effective key. What is
remembered is a digest of that, with the time of the first acceptance: an id may be used again
once the window since then has passed, however often it was repeated meanwhile. Sightings lie in
buckets by time, so that they can be forgotten whole. Where they lie is the store's business.
"""

from __future__ import annotations

import xxhash

from partibus.broker.message import Incoming
from partibus.broker.partitioning import key_of
from partibus.broker.records import BUCKETS_BITS, Bucket, Digest, FragmentKey

_SIGN = 1 << 63
_WHOLE = 1 << 64


def bucket_of(at_ms: int, window_ms: int) -> Bucket:
    """The bucket for what is accepted now; it is shorter than the window, by half or more."""
    exponent = max((window_ms - 1).bit_length() - BUCKETS_BITS, 0)
    return Bucket(exponent, at_ms >> exponent)


def digest_of(fragment: FragmentKey, message: Incoming) -> Digest:
    """What the message is known by in this fragment."""
    # The number of a fragment may be used again; the id of an entity never is.
    place = f"{fragment.entity}/{fragment.incarnation}/{fragment.partition}/"
    if fragment.partition:
        key = key_of(message, detects_duplicates=True) or ""
        place += f"{len(key)}/{key}/"
    number = xxhash.xxh3_128_intdigest(_octets(place + message.message_id))
    return Digest(_signed(number >> 64), _signed(number & (_WHOLE - 1)))


def _signed(number: int) -> int:
    return number - _WHOLE if number & _SIGN else number


def _octets(text: str) -> bytes:
    # A binary id need not be text.
    return text.encode("utf-8", "surrogatepass")
