"""Encrypted content that a client stores for the server but cannot read, such as conversation summaries.

It uses authenticated encryption (AES-SIV, RFC 5297), so that altered text does not decrypt. AES-SIV needs no
random number: a text has one ciphertext per key, and repeated reads of a response return the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.answers import StoreMessage, ask_store
from greenroom.schemas.problems import invalid
from greenroom.schemas.responses.items import MAX_ENCRYPTED_CONTENT
from greenroom.schemas.stored import EVERYBODY

KEY_BYTES = 32
"""Length of a key in bytes: half of it authenticates, half of it encrypts."""
MAX_DECRYPTED = 64 << 20
"""Largest decompressed text, in bytes."""

_VERSION = "gr1_"


class ContentCipher:
    """Encrypts and decrypts texts.

    Args:
        key: `KEY_BYTES` bytes; text encrypted under another key does not decrypt.
        owner: Owner of the texts; those of another owner do not decrypt either.
    """

    def __init__(self, key: bytes, owner: str = EVERYBODY) -> None:
        # Deferred: this import would add a tenth of a second to every start.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self._cipher = AESSIV(key)
        # No data for `EVERYBODY`, as in content from before there were owners.
        self._owner = [owner.encode()] if owner else None

    def encrypt(self, text: str) -> str:
        """Encrypt a text, and return it in URL-safe characters."""
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
        encrypted = self._cipher.encrypt(packed, self._owner)
        return _VERSION + base64.urlsafe_b64encode(encrypted).decode()

    def decrypt(self, content: str, field: str) -> str:
        """Decrypt a text.

        Args:
            field: Name of the field in the request, for errors.

        Raises:
            ProblemError: 400 that names the field: altered, too long, or encrypted under another key.
        """
        from cryptography.exceptions import InvalidTag

        if len(content) > MAX_ENCRYPTED_CONTENT:
            detail = (
                f"`{field}` has {len(content)} characters, but must have at most {MAX_ENCRYPTED_CONTENT}."
            )
            raise invalid(detail, field, "string_above_max_length")
        try:
            packed = self._cipher.decrypt(_decode(content), self._owner)
        except (InvalidTag, ValueError):
            detail = (
                f"`{field}` cannot be opened: it must be sent back as this server sent it, and the server "
                "must still have its key."
            )
            raise invalid(detail, field, "invalid_encrypted_content") from None
        text = zlib.decompressobj().decompress(packed, MAX_DECRYPTED + 1)
        if len(text) > MAX_DECRYPTED:
            detail = f"`{field}` holds more than {MAX_DECRYPTED} bytes of text; send the conversation itself."
            raise invalid(detail, field, "string_above_max_length")
        return text.decode("utf-8", "surrogatepass")


class ServerCipher:
    """Provider of ciphers with the server's key.

    The store keeps the key, so that content from before a restart still decrypts.

    Args:
        store: Store with the key.
    """

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self._store = store
        self._key: bytes | None = None

    async def load(self, owner: str) -> ContentCipher:
        """Return the cipher of an owner; the first call reads the key.

        Raises:
            ProblemError: The store does not return its key.
        """
        if self._key is None:
            secret = await ask_store(self._store, lambda tables: tables.secrets.find("seal"), writes=True)
            # A worker thread, because the first call imports a library for a tenth of a second.
            await trio.to_thread.run_sync(ContentCipher, secret)
            self._key = secret
        return ContentCipher(self._key, owner)


def _decode(content: str) -> bytes:
    if not content.startswith(_VERSION):
        raise ValueError(content[: len(_VERSION)])
    try:
        return base64.b64decode(content.removeprefix(_VERSION), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
