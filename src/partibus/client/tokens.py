"""Shared access signatures: what we show the service to be let in (SPEC 3.7).

A key makes tokens for one resource and a limited time, as often as they are needed. A signature
that was made elsewhere is shown as it is, and cannot be renewed.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote, quote_plus

TOKEN_LIFE_MS = 3_600_000
_NEVER_MS = 253_402_300_799_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token and when it ends; `is_renewable` where another can be made."""

    text: str = field(repr=False)
    expires_ms: int
    is_renewable: bool


class Credentials(Protocol):
    """Who makes tokens."""

    def token(self, resource: str, now_ms: int) -> Token:
        """A token for this resource (`sb://host/entity`) from now on."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The name and the key of an access rule."""

    name: str
    key: str = field(repr=False)

    def token(self, resource: str, now_ms: int) -> Token:
        """A new token, signed with the key."""
        expires_s = (now_ms + TOKEN_LIFE_MS) // 1000
        encoded = quote_plus(resource)
        # The key is used as the text it is, not as the bytes that its base64 stands for.
        digest = hmac.digest(self.key.encode(), f"{encoded}\n{expires_s}".encode(), "sha256")
        text = (
            f"SharedAccessSignature sr={encoded}&sig={quote(b64encode(digest), safe='')}"
            f"&se={expires_s}&skn={quote(self.name, safe='')}"
        )
        return Token(text, expires_s * 1000, is_renewable=True)


@dataclass(frozen=True, slots=True)
class SharedSignature:
    """A signature that somebody else made."""

    text: str = field(repr=False)

    def token(self, resource: str, now_ms: int) -> Token:
        """The signature itself, whatever the resource: the service decides what it is good for."""
        expiry = re.search(r"(?:^|[&\s])se=(\d+)", self.text)
        expires_ms = int(expiry.group(1)) * 1000 if expiry else _NEVER_MS
        return Token(self.text, expires_ms, is_renewable=False)
