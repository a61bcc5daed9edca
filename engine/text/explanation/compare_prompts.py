"""Comparison of two prompts: the first difference, and what both have after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from greenroom.engine.text.prefix_cache.memory.tree import common_length
from greenroom.schemas.events.explanation import PromptDifference
from greenroom.schemas.messages.prepared_input import OutlinedPart, PromptOutline

_WIDTH = 4
"""Bytes of a packed token id."""

_ANCHOR = 24
"""Tokens of an earlier prompt that are searched in a later one: more than any template repeats."""

_ANCHORS = 32
"""Most searches in a prompt, each of which reads it once."""

_OCCURRENCES = 16
"""Most places of a piece that are tried, in a prompt that repeats itself."""

_MERGED = 4
"""Tokens at the end of raw text that may change when text follows."""


@attrs.frozen(eq=False)
class KnownPrompt:
    """A prompt in the form in which it is compared.

    Args:
        tokens: Token ids, packed into bytes.
        outline: Outline of the conversation; None for raw text.
        turns_end: Length in tokens up to the last end of a turn; what follows is only the beginning of an
            answer.
        sizes: Sizes in bytes of its messages and tools, by digest.
    """

    tokens: bytes
    outline: PromptOutline | None
    turns_end: int
    sizes: Mapping[bytes, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        outline = self.outline or PromptOutline()
        sizes = {part.digest: part.size for part in (*outline.messages, *outline.tools)}
        object.__setattr__(self, "sizes", sizes)

    def __len__(self) -> int:
        return len(self.tokens) // _WIDTH


def find_difference(prompt: KnownPrompt, earlier: KnownPrompt) -> PromptDifference:
    """Return the first difference between a prompt and an earlier one."""
    shared = common_length(prompt.tokens, earlier.tokens) // _WIDTH
    again = _common_after(prompt, earlier, shared)
    difference = PromptDifference(shared=shared, again=again)
    if prompt.outline is None or earlier.outline is None:
        reached = min(len(prompt), len(earlier)) - _MERGED
        return difference if shared >= reached else attrs.evolve(difference, part="prompt", index=0)
    found = _first_part(prompt.outline, earlier.outline)
    if shared >= min(len(prompt), len(earlier)):
        return difference
    if found is None:
        agrees = shared >= min(prompt.turns_end, earlier.turns_end) and not again
        return difference if agrees else attrs.evolve(difference, part="template")
    return attrs.evolve(difference, part=found.part, index=found.index, role=found.role)


def _first_part(prompt: PromptOutline, earlier: PromptOutline) -> PromptDifference | None:
    """Return the first part that differs; None if one conversation continues the other."""
    tools = _first_unequal(prompt.tools, earlier.tools, same_length=True)
    if tools is not None:
        return PromptDifference("tool", tools.index)
    if prompt.dropped != earlier.dropped:
        return PromptDifference("history")
    message = _first_unequal(prompt.messages, earlier.messages)
    if message is None:
        return None
    if message.index is None:
        return PromptDifference("system_prompt")
    return PromptDifference("message", message.index, message.role)


def _first_unequal(
    parts: tuple[OutlinedPart, ...], earlier: tuple[OutlinedPart, ...], *, same_length: bool = False
) -> OutlinedPart | None:
    for part, before in zip(parts, earlier, strict=False):
        if part.digest != before.digest:
            return part
    if same_length and len(parts) != len(earlier):
        common = min(len(parts), len(earlier))
        return (parts if len(parts) > common else earlier)[common]
    return None


def _common_after(prompt: KnownPrompt, earlier: KnownPrompt, shared: int) -> tuple[tuple[int, int], ...]:
    """Return the longest span found of tokens behind the difference that the earlier prompt has too.

    Pieces of the earlier prompt are searched in the later one, and extended both ways: its last turn first,
    then places behind the difference. Texts that repeat themselves have several such places.
    """
    best = (0, 0)
    for at in _anchors(shared + 1, len(earlier) - _ANCHOR, earlier.turns_end - _ANCHOR):
        for found in _occurrences(
            prompt.tokens, earlier.tokens[at * _WIDTH : (at + _ANCHOR) * _WIDTH], shared
        ):
            start = found - _common_end(prompt.tokens, earlier.tokens, shared, found, at)
            end = (
                found
                + common_length(prompt.tokens[found * _WIDTH :], earlier.tokens[at * _WIDTH :]) // _WIDTH
            )
            best = max(best, (start, end), key=lambda span: span[1] - span[0])
        if 2 * (best[1] - best[0]) > len(earlier) - shared:
            break
    return (best,) if best[1] else ()


def _anchors(first: int, last: int, turns_end: int) -> Iterator[int]:
    """Yield places at which to search, from `first` to `last`: the turns' end, then ever farther apart."""
    if first <= turns_end <= last:
        yield turns_end
    at, step, spacing = first, _ANCHOR, max(_ANCHOR, (last - first) // (_ANCHORS // 2))
    for _ in range(_ANCHORS):
        if at > last:
            return
        yield at
        at += step
        step = min(2 * step, spacing)


def _occurrences(tokens: bytes, anchor: bytes, first: int) -> Iterator[int]:
    """Yield the first positions from `first` on at which the tokens of an anchor occur."""
    found, count = tokens.find(anchor, first * _WIDTH), 0
    while found >= 0 and count < _OCCURRENCES:
        if found % _WIDTH == 0:
            yield found // _WIDTH
        count += 1
        found = tokens.find(anchor, found + 1)


def _common_end(tokens: bytes, earlier: bytes, first: int, end: int, earlier_end: int) -> int:
    """Return the number of equal tokens before two places, by binary search."""
    low, high = 0, min(end, earlier_end) - first
    while low < high:
        middle = (low + high + 1) // 2
        one = tokens[(end - middle) * _WIDTH : end * _WIDTH]
        if one == earlier[(earlier_end - middle) * _WIDTH : earlier_end * _WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low
