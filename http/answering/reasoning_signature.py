"""Signatures of reasoning text, which clients send back along with it.

A signature shows that reasoning came unchanged from a server like this one. It uses neither key nor state, so
that it holds after a restart and on another machine. It does not stop a client that forges one, which could
as well write the reasoning into a message. Hidden reasoning travels inside its signature.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b

LEFT_OUT = "the model does not see reasoning that this server did not sign, such as another server's"
"""Notice to clients whose histories hold such reasoning."""

_VERSION = "gr1"


class ReasoningSigner:
    """Signs reasoning incrementally.

    Args:
        hidden: True if the reasoning is hidden and travels inside its signature.
    """

    def __init__(self, hidden: bool) -> None:
        self._digest = _new_digest()
        self._pieces: list[bytes] | None = [] if hidden else None

    def add(self, text: str) -> None:
        """Add the next piece of reasoning text."""
        piece = _encode(text)
        self._digest.update(piece)
        if self._pieces is not None:
            self._pieces.append(piece)

    def signature(self) -> str:
        """Return the signature of the text so far."""
        parts = [_VERSION, self._digest.hexdigest()]
        if self._pieces is not None:
            parts.append(base64.b64encode(b"".join(self._pieces)).decode())
        return ".".join(parts)


def sign(reasoning: str, *, hidden: bool = False) -> str:
    signer = ReasoningSigner(hidden)
    signer.add(reasoning)
    return signer.signature()


def signed_reasoning(shown: str, signature: str) -> str | None:
    """Return the reasoning that a signature covers; None if the signature does not match.

    Args:
        shown: Reasoning text from the client; empty if the text travels inside the signature.
    """
    version, _, rest = signature.partition(".")
    digest, _, hidden_text = rest.partition(".")
    reasoning = _encode(shown)
    if hidden_text and not shown:
        try:
            reasoning = base64.b64decode(hidden_text, validate=True)
        except (binascii.Error, ValueError):
            return None
    expected = _new_digest()
    expected.update(reasoning)
    if version != _VERSION or digest != expected.hexdigest():
        return None
    return reasoning.decode("utf-8", "replace")


def _new_digest() -> blake2b:
    return blake2b(digest_size=16, person=b"thought")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
