"""Encrypted content that a client stores for the server but cannot read, such as conversation summaries.

It uses authenticated encryption (AES-SIV, RFC 5297), so that altered text does not decrypt. AES-SIV needs no
random number: a text has one ciphertext per key, and repeated reads of a response return the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import zlib

from greenroom.schemas.problems import invalid

KEY_BYTES = 32
"""Length of a key in bytes: half of it authenticates, half of it encrypts."""
MAX_SEALED = 10_485_760
"""Longest encrypted text, in characters (OpenAI's limit)."""
MAX_OPENED = 64 << 20
"""Largest decompressed text, in bytes; longer ones are cut."""

_VERSION = "gr1_"


class Seal:
    """Encrypts and decrypts texts.

    Args:
        key: `KEY_BYTES` bytes; text encrypted under another key does not decrypt.
    """

    def __init__(self, key: bytes) -> None:
        # Deferred: this import would add a tenth of a second to every start.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self._cipher = AESSIV(key)

    def seal(self, text: str) -> str:
        """Encrypt a text, and return it in URL-safe characters."""
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
        sealed = self._cipher.encrypt(packed, None)
        return _VERSION + base64.urlsafe_b64encode(sealed).decode()

    def open(self, sealed: str, field: str) -> str:
        """Decrypt a text.

        Args:
            field: Name of the field in the request, for errors.

        Raises:
            ProblemError: 400 that names the field: altered by the client, or encrypted under another key.
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
