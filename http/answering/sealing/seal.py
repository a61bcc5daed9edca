"""Texts that a client keeps for the server and cannot read, such as summaries of what was said.

Sealing is authenticated encryption (AES-SIV, RFC 5297): what was changed on its way does not open. It needs
no random number, so that a text has one seal under one key, and everybody who reads an answer again reads the
same.
"""

from __future__ import annotations

import base64
import binascii
import zlib

from greenroom.schemas.problems import invalid

KEY_BYTES = 32
"""Of a key: half of it authenticates, half of it encrypts."""
MAX_SEALED = 10_485_760
"""Characters of a sealed text, which is OpenAI's limit."""
MAX_OPENED = 64 << 20
"""Bytes of a text that is opened."""

_VERSION = "gr1_"


class Seal:
    """Seals texts and opens them again.

    Args:
        key: `KEY_BYTES` bytes; what another key has sealed does not open.
    """

    def __init__(self, key: bytes) -> None:
        # Imported when a first text is sealed: it would be a tenth of a second of every start.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self._cipher = AESSIV(key)

    def seal(self, text: str) -> str:
        """Return a text as only this key can read it, in characters that are safe everywhere."""
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
        sealed = self._cipher.encrypt(packed, None)
        return _VERSION + base64.urlsafe_b64encode(sealed).decode()

    def open(self, sealed: str, field: str) -> str:
        """Return the text that was sealed.

        Args:
            field: What the client calls it, for errors.

        Raises:
            ProblemError: 400 that names the field: changed on its way, or sealed under another key.
        """
        from cryptography.exceptions import InvalidTag

        if len(sealed) > MAX_SEALED:
            detail = f"`{field}` has {len(sealed)} characters, but must have at most {MAX_SEALED}."
            raise invalid(detail, field, "string_above_max_length")
        try:
            packed = self._cipher.decrypt(_decode(sealed), None)
        except (InvalidTag, ValueError):
            detail = (
                f"`{field}` cannot be opened: it must be sent back as this server sent it, and the server "
                "must still have its key."
            )
            raise invalid(detail, field, "invalid_encrypted_content") from None
        text = zlib.decompressobj().decompress(packed, MAX_OPENED)
        return text.decode("utf-8", "surrogatepass")


def _decode(sealed: str) -> bytes:
    if not sealed.startswith(_VERSION):
        raise ValueError(sealed[: len(_VERSION)])
    try:
        return base64.b64decode(sealed.removeprefix(_VERSION), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
