"""The SASL exchange before AMQP, of either role (part 5.3 of the standard).

Here only the frames: who may come in is decided by the driver, which sees SaslInitiated.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter

from partibus.engine.errors import ProtocolError, Scope
from partibus.wire.composites import compose
from partibus.wire.frames import FRAME_SASL, write_frame
from partibus.wire.performatives import SaslInit, SaslMechanisms, SaslOutcome

# The order of the real service; .NET looks for the first.
MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")

OUTCOME_OK: Final = 0
OUTCOME_AUTH: Final = 1


def sasl_frame(performative: Any) -> bytes:
    """A SASL frame."""
    out = BytesWriter()
    write_frame(out, FRAME_SASL, 0, compose(performative))
    return out.getvalue()


def mechanisms_frame() -> bytes:
    """Server: what we offer."""
    return sasl_frame(SaslMechanisms(list(MECHANISMS)))


def outcome_frame(ok: bool) -> bytes:
    """Server: whether the client may go on."""
    return sasl_frame(SaslOutcome(OUTCOME_OK if ok else OUTCOME_AUTH))


def take_init(performative: Any) -> SaslInit:
    """Server: the client's choice, which must be one of ours."""
    if not isinstance(performative, SaslInit):
        raise ProtocolError(Scope.CONNECTION, "amqp:not-allowed", "sasl-init was expected")
    if performative.mechanism not in MECHANISMS:
        raise ProtocolError(
            Scope.CONNECTION,
            "amqp:unauthorized-access",
            f"SASL mechanism {performative.mechanism!r} was not offered",
        )
    return performative


def answer_mechanisms(performative: Any, mechanism: str, response: bytes) -> bytes:
    """Client: the init frame, if the server offers our mechanism."""
    if not isinstance(performative, SaslMechanisms):
        raise ProtocolError(Scope.CONNECTION, "amqp:not-allowed", "sasl-mechanisms was expected")
    if mechanism not in (performative.sasl_server_mechanisms or []):
        raise ProtocolError(
            Scope.CONNECTION,
            "amqp:unauthorized-access",
            f"the server does not offer SASL {mechanism}",
        )
    return sasl_frame(SaslInit(mechanism, response))


def take_outcome(performative: Any) -> bool:
    """Client: whether the server lets us in."""
    if not isinstance(performative, SaslOutcome):
        raise ProtocolError(Scope.CONNECTION, "amqp:not-implemented", "SASL challenges")
    return performative.code == OUTCOME_OK
