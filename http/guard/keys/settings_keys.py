"""API keys of the settings, which need no database."""

from __future__ import annotations

from pathlib import Path

from greenroom.schemas.settings.caller import Caller
from greenroom.schemas.settings.key_record import KeyRecord, digest_of
from greenroom.schemas.settings.settings import Settings

LONGEST_KEY = 1_024
"""Length limit of a key in characters; it has to fit into a header."""


def settings_keys(settings: Settings) -> tuple[KeyRecord, ...]:
    """Return the keys in the settings `api_key` and `api_key_file`, with an operator's rights.

    Raises:
        ValueError: The file cannot be read, or a key cannot be sent in a header; the message names the
            setting, but no key.
    """
    found = []
    if settings.api_key is not None:
        found.append(_record("api_key", settings.api_key))
    if settings.api_key_file is not None:
        place = f"api_key_file = {settings.api_key_file!r}"
        try:
            with Path(settings.api_key_file).expanduser().open(encoding="utf-8") as file:
                text = file.read(2 * LONGEST_KEY)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"{place}: {getattr(error, 'strerror', None) or error}") from error
        found.append(_record(place, text.strip()))
    return tuple(found)


def _record(place: str, secret: str) -> KeyRecord:
    if not secret:
        raise ValueError(f"{place}: the key is empty")
    if len(secret) > LONGEST_KEY or not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ValueError(f"{place}: a key is one line of up to {LONGEST_KEY} printable ASCII characters")
    name = place.partition(" ")[0]
    return KeyRecord(name, digest_of(secret), Caller(owner=f"key_of_{name}", name=name), created=0.0)
