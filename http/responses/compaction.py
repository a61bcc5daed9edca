"""Compacted conversations: the model's summary, and the last turns verbatim.

Both travel as one encrypted item, which replaces everything before it except instructions.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.tables import StoreMessage, ask_store
from greenroom.http.responses.item_bodies import answered_call
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import invalid
from greenroom.schemas.stored import EVERYBODY
from greenroom.schemas.wire.responses_items import MAX_ENCRYPTED_CONTENT, NOTE, Item, ResolvedItem

KEPT_TURNS = 16_384  # Limit of the last turns kept verbatim, in characters of JSON: some 4,000 tokens

SUMMARY_TOKENS = 2_048  # Limit of a summary in tokens

_SUMMARY_SHARE = 8
_TURNS_SHARE = 4
"""Divisors that limit both in a short context: the summary to an eighth of it, the turns to a quarter, at 3
characters per token."""

_FILES = {"input_image": "Image", "input_file": "Document", "input_audio": "Recording"}
_LARGE_FILE = 1_024
"""Size of a part, in characters of JSON, above which it is assumed to hold a file's data and not its URL."""

REQUEST = (
    "Summarize this conversation for an assistant who will go on with it and sees nothing else of it. Say "
    "what the user wants, what has been decided and done, what was found out (names, paths, numbers, errors, "
    "word for word where it matters), and what is still to be done. Write the summary alone."
)
"""The prompt for the summary, appended to the conversation."""

PREAMBLE = "What came before, summarized:\n\n"


@attrs.frozen
class Compaction:
    """A compacted conversation. `items`: instructions and the last turns, with notes in place of embedded
    files.
    """

    summary: str
    items: tuple[JsonObject, ...]

    @property
    def has_turns(self) -> bool:
        """True if any items besides instructions were kept."""
        return not all(map(is_instruction, self.items))

    def encrypt(self, cipher: ContentCipher) -> str:
        return cipher.encrypt(json.dumps({"summary": self.summary, "items": self.items}))

    @classmethod
    def decrypt(cls, cipher: ContentCipher, content: str, field: str) -> Compaction:
        """Return the compaction in encrypted content. Raises ProblemError (400) that names the field."""
        decrypted = json.loads(cipher.decrypt(content, field))
        return cls(decrypted["summary"], tuple(decrypted["items"]))

    def stands_for(self) -> list[JsonObject]:
        """Return the items that the model reads in place of everything before the compaction."""
        instructions = [item for item in self.items if is_instruction(item)]
        turns = [item for item in self.items if not is_instruction(item)]
        return [*instructions, _summary_item(self.summary), *turns]


@attrs.frozen
class CompactionLimits:
    """Size limits of a compaction, which leave space for the turns that follow. `summary`: limit of the
    summary in tokens; `turns`: limit of the last turns in characters of JSON.
    """

    summary: int = SUMMARY_TOKENS
    turns: int = KEPT_TURNS

    @classmethod
    def within(cls, context: int) -> CompactionLimits:
        return cls(
            max(1, min(SUMMARY_TOKENS, context // _SUMMARY_SHARE)),
            min(KEPT_TURNS, 3 * context // _TURNS_SHARE),
        )


def compacted(summary: str, items: Sequence[JsonObject], limits: CompactionLimits) -> Compaction:
    """Return the compaction of a conversation, given its summary."""
    instructions = [item for item in items if is_instruction(item) and not _is_summary(item)]
    said = [without_large_files(item) for item in items if not is_instruction(item)]
    return Compaction(summary, (*instructions, *last_turns(said, limits.turns)))


def items_as_read(items: Iterable[Item]) -> list[JsonObject]:
    """Return the items of a conversation as the model reads them, with compactions expanded."""
    read: list[JsonObject] = []
    for item in items:
        match item.param:
            case ResolvedItem(others, replaces):
                read = [other for other in read if is_instruction(other)] if replaces else read
                # The instructions before the compaction may be among those that it holds.
                read += [other.raw for other in others if other.raw not in read]
            case _:
                read.append(item.raw)
    return read


def without_large_files(item: JsonObject) -> JsonObject:
    """Return an item with a note in place of each embedded image, document and recording.

    A single file can exceed the limit of all kept turns together; the summary covers its content.
    """
    holder = next((name for name in ("content", "output") if isinstance(item.get(name), list)), None)
    if holder is None:
        return item
    return {**item, holder: [_without_large_file(part) for part in item[holder]]}


def _without_large_file(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _FILES or len(json.dumps(part)) <= _LARGE_FILE:
        return part
    return {"type": "input_text", "text": f"[{_FILES[kind]}, left out since]"}


def last_turns(items: Sequence[JsonObject], room: int) -> Sequence[JsonObject]:
    """Return as many whole turns at the end as fit.

    If not even the last turn fits, its user message is kept if that fits, and then as many items from the end
    of the turn as fit. A result is never kept without its call.
    """
    behind = list(accumulate((len(json.dumps(item)) for item in reversed(items)), initial=0))[::-1]
    questions = [index for index, item in enumerate(items) if item.get("role") == "user"]
    seams = set(_seams(items))
    for index in questions:
        if index in seams and behind[index] <= room:
            return items[index:]
    question = items[questions[-1] : questions[-1] + 1] if questions else []
    last = questions[-1] + 1 if questions else 0
    size = behind[last - 1] - behind[last] if question else 0
    question, room = (question, room - size) if size <= room else ([], room)
    begin = min((seam for seam in seams if seam >= last and behind[seam] <= room), default=len(items))
    return [*question, *items[begin:]]


def _seams(items: Sequence[JsonObject]) -> Iterator[int]:
    """Yield the indexes, from the end, at which no call is separated from its result."""
    unanswered: set[Any] = set()
    for index in range(len(items) - 1, -1, -1):
        if (answered := answered_call(items[index])) is not None:
            unanswered.add(answered)
        else:
            unanswered.discard(items[index].get("call_id"))
        if not unanswered:
            yield index


def _summary_item(summary: str) -> JsonObject:
    # Developer messages are never dropped when a conversation outgrows its context.
    return {"type": "message", "role": "developer", "content": PREAMBLE + summary, NOTE: True}


def _is_summary(item: JsonObject) -> bool:
    content = item.get("content")
    return isinstance(content, str) and content.startswith(PREAMBLE)


def is_instruction(item: JsonObject) -> bool:
    return item.get("role") in ("system", "developer")


# Encrypted content that a client stores for the server but cannot read, such as conversation summaries.
#
# It uses authenticated encryption (AES-SIV, RFC 5297), so that altered text does not decrypt. AES-SIV needs
# no random number: a text has one ciphertext per key, and repeated reads of a response return the same
# bytes.

KEY_BYTES = 32  # Length of a key in bytes: half of it authenticates, half of it encrypts
MAX_DECRYPTED = 64 << 20  # Largest decompressed text, in bytes

_VERSION = "gr1_"


class ContentCipher:
    """Encrypts and decrypts texts. `key`: `KEY_BYTES` bytes; text encrypted under another key does not
    decrypt; `owner`: owner of the texts; those of another owner do not decrypt either.
    """

    def __init__(self, key: bytes, owner: str = EVERYBODY) -> None:
        # Deferred: this import would add a tenth of a second to every start.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self._cipher = AESSIV(key)
        # No data for `EVERYBODY`, as in content from before there were owners.
        self._owner = [owner.encode()] if owner else None

    def encrypt(self, text: str) -> str:
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
        encrypted = self._cipher.encrypt(packed, self._owner)
        return _VERSION + base64.urlsafe_b64encode(encrypted).decode()

    def decrypt(self, content: str, field: str) -> str:
        """Decrypt a text. Raises ProblemError: 400 that names the field: altered, too long, or encrypted
        under another key.
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
    """

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self._store = store
        self._key: bytes | None = None

    async def load(self, owner: str) -> ContentCipher:
        """Return the cipher of an owner; the first call reads the key. Raises ProblemError: the store does
        not return its key.
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
