"""Signatures of thoughts, which clients send back with them.

A signature says that a thought came from a server like this one and is unchanged. It needs no key and no
memory, so that it holds after a restart and on another machine; it is no proof against a client that makes
one up, which could as well write the thought into a message. A thought that is not shown travels in it.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b

_VERSION = "gr1"


class ThoughtSigner:
    """Signs one thought, piece by piece.

    Args:
        hidden: The thought is not shown, and travels in its signature.
    """

    def __init__(self, hidden: bool) -> None:
        self._digest = _new_digest()
        self._pieces: list[bytes] | None = [] if hidden else None

    def add(self, text: str) -> None:
        """Add what comes next in the thought."""
        piece = _encode(text)
        self._digest.update(piece)
        if self._pieces is not None:
            self._pieces.append(piece)

    def signature(self) -> str:
        """Return the signature of what was added."""
        parts = [_VERSION, self._digest.hexdigest()]
        if self._pieces is not None:
            parts.append(base64.b64encode(b"".join(self._pieces)).decode())
        return ".".join(parts)


def sign(thought: str, *, hidden: bool = False) -> str:
    """Return the signature of a whole thought."""
    signer = ThoughtSigner(hidden)
    signer.add(thought)
    return signer.signature()


def is_signature(text: str) -> bool:
    """Return whether a text looks like a signature of ours, valid or not."""
    return text.startswith(f"{_VERSION}.")


def signed_thought(shown: str, signature: str) -> str | None:
    """Return the thought that a signature belongs to, None if it is not that of the one shown.

    Args:
        shown: What the client has sent of the thought; nothing, if that travels in the signature.
    """
    version, _, rest = signature.partition(".")
    digest, _, sealed = rest.partition(".")
    thought = _encode(shown)
    if sealed and not shown:
        try:
            thought = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError):
            return None
    expected = _new_digest()
    expected.update(thought)
    if version != _VERSION or digest != expected.hexdigest():
        return None
    return thought.decode("utf-8", "replace")


def _new_digest() -> blake2b:
    return blake2b(digest_size=16, person=b"thought")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
