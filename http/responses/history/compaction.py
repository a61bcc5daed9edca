"""Compacted conversations: the model's summary, and the last turns verbatim.

Both travel as one encrypted item, which replaces everything before it except instructions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import attrs

from greenroom.http.responses.history.encrypted_content import ContentCipher
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.responses.items import NOTE, Item, ResolvedItem

KEPT_TURNS = 16_384
"""Limit of the last turns kept verbatim, in characters of JSON: some 4,000 tokens."""

SUMMARY_TOKENS = 2_048
"""Limit of a summary in tokens."""

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
    """A compacted conversation.

    Args:
        summary: The model's summary.
        items: Instructions and the last turns, with notes in place of embedded files.
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
        """Return the compaction in encrypted content.

        Raises:
            ProblemError: 400 that names the field.
        """
        decrypted = json.loads(cipher.decrypt(content, field))
        return cls(decrypted["summary"], tuple(decrypted["items"]))

    def stands_for(self) -> list[JsonObject]:
        """Return the items that the model reads in place of everything before the compaction."""
        instructions = [item for item in self.items if is_instruction(item)]
        turns = [item for item in self.items if not is_instruction(item)]
        return [*instructions, _summary_item(self.summary), *turns]


@attrs.frozen
class CompactionLimits:
    """Size limits of a compaction, which leave space for the turns that follow.

    Args:
        summary: Limit of the summary in tokens.
        turns: Limit of the last turns in characters of JSON.
    """

    summary: int = SUMMARY_TOKENS
    turns: int = KEPT_TURNS

    @classmethod
    def within(cls, context: int) -> CompactionLimits:
        """Return the limits for a context of `context` tokens."""
        return cls(
            max(1, min(SUMMARY_TOKENS, context // _SUMMARY_SHARE)),
            min(KEPT_TURNS, 3 * context // _TURNS_SHARE),
        )


def compacted(summary: str, items: Sequence[JsonObject], limits: CompactionLimits) -> Compaction:
    """Return the compaction of a conversation, given its summary.

    Args:
        items: All items of the conversation, with older compactions expanded.
    """
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

    Args:
        room: Limit in characters of JSON.
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
        kind, call = items[index].get("type"), items[index].get("call_id")
        if isinstance(kind, str) and kind.endswith("_output"):
            unanswered.add(call)
        elif isinstance(kind, str) and kind.endswith("_call"):
            unanswered.discard(call)
        if not unanswered:
            yield index


def _summary_item(summary: str) -> JsonObject:
    # Developer messages are never dropped when a conversation outgrows its context.
    return {"type": "message", "role": "developer", "content": PREAMBLE + summary, NOTE: True}


def _is_summary(item: JsonObject) -> bool:
    content = item.get("content")
    return isinstance(content, str) and content.startswith(PREAMBLE)


def is_instruction(item: JsonObject) -> bool:
    """Return whether an item is a system or developer message."""
    return item.get("role") in ("system", "developer")
