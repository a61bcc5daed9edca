"""Explanation why a prompt was computed again: its first difference from an earlier one, and its reuse."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as GenericSequence

import attrs

from greenroom.engine.text.prefix_cache.memory_tier import common_length, pack
from greenroom.engine.text.sequence import Sequence, prefill_keys
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.explanation import Explanation, PrefixEnd, PrefixEndReason, PromptDifference
from greenroom.schemas.messages.prepared_input import OutlinedPart, PreparedPrompt, PromptOutline
from greenroom.schemas.messages.requests import InferenceRequest

_WIDTH = 4  # Bytes of a packed token id

_ANCHOR = 24  # Tokens of an earlier prompt that are searched in a later one: more than any template repeats

_ANCHORS = 32  # Most searches in a prompt, each of which reads it once

_OCCURRENCES = 16  # Most places of a piece that are tried, in a prompt that repeats itself

_MERGED = 4  # Tokens at the end of raw text that may change when text follows


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

    @sizes.default
    def _sizes_of_parts(self) -> Mapping[bytes, int]:
        outline = self.outline or PromptOutline()
        return {part.digest: part.size for part in (*outline.messages, *outline.tools)}

    def __len__(self) -> int:
        return len(self.tokens) // _WIDTH


def find_difference(prompt: KnownPrompt, earlier: KnownPrompt) -> PromptDifference:
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
    found, count = tokens.find(anchor, first * _WIDTH), 0
    while found >= 0 and count < _OCCURRENCES:
        if found % _WIDTH == 0:
            yield found // _WIDTH
        count += 1
        found = tokens.find(anchor, found + 1)


def _common_end(tokens: bytes, earlier: bytes, first: int, end: int, earlier_end: int) -> int:
    low, high = 0, min(end, earlier_end) - first
    while low < high:
        middle = (low + high + 1) // 2
        one = tokens[(end - middle) * _WIDTH : end * _WIDTH]
        if one == earlier[(earlier_end - middle) * _WIDTH : earlier_end * _WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def explained(sequence: Sequence, event: InferenceEvent) -> InferenceEvent:
    if not sequence.is_explained or not isinstance(event, Finished | Failed):
        return event
    return attrs.evolve(event, explanation=explain_sequence(sequence))


def explain_sequence(sequence: Sequence) -> Explanation:
    metrics, features = sequence.metrics, sequence.features
    prefix = explain_prefix_end(
        sequence.difference,
        prompt=len(sequence.prompt),
        cached=metrics.cached_tokens,
        known=metrics.known_tokens,
        seconds=metrics.timing().prefill,
    )
    reused = 0 if features is None else features.reused_tokens
    return Explanation(metrics.cached(reused), prefix, metrics.waits(), metrics.preempted())


FEW_TOKENS = 32  # Shared tokens up to which nothing is lost: so few are not kept, since a copy takes as long


def explain_prefix_end(
    difference: PromptDifference | None, *, prompt: int, cached: int, known: int | None, seconds: float
) -> PrefixEnd:
    """Return the reason why a prompt's cached prefix ended, and what that cost.

    Args:
        difference: Difference from the client's nearest earlier prompt; None if there is none.
        prompt: Number of tokens of the prompt; the last one is always computed.
        cached: Number of tokens that were not computed.
        known: Number of tokens at the beginning that the cache held, even where the model cannot continue;
            None if the request uses no cache.
        seconds: Time that the other tokens took.
    """
    computable = prompt - 1
    if difference is None:
        return PrefixEnd(_reason_alone(cached, computable, known))
    shared = min(difference.shared, computable)
    repeated = difference.repeated(cached, computable)
    figures = shared, repeated, seconds * repeated / (prompt - cached)
    lost = max(0, shared - cached)
    if known is not None and cached < computable and (difference.part is None or 2 * lost > repeated):
        reason: PrefixEndReason = "continued"
        if lost >= FEW_TOKENS:
            reason = "no_checkpoint" if known >= shared else "not_cached"
        return PrefixEnd(reason, None, None, None, *figures)
    if known is None or cached >= computable:
        return PrefixEnd(_reason_alone(cached, computable, known), None, None, None, *figures)
    return PrefixEnd("changed", difference.part, difference.index, difference.role, *figures)


def _reason_alone(cached: int, computable: int, known: int | None) -> PrefixEndReason:
    if known is None:
        return "off"
    return "whole" if cached >= computable else "first"


_PROMPTS = 32  # Most prompts of a client

_BYTES = 16 * 1024 * 1024  # Most bytes of the prompts of all clients

_PART_BYTES = 300  # Bytes that an outlined part takes, about

ClientKey = tuple[str, str | None]
"""Name of a client, and of the LoRA adapter that it uses."""


class PromptHistory:
    """Remembers the latest prompts of each client, as long as the model is loaded.

    Prompts of different clients are never compared. A prompt replaces an earlier one that it continues.

    Args:
        budget: Maximum bytes to remember; the clients that sent nothing for longest are forgotten first.
    """

    def __init__(self, budget: int = _BYTES) -> None:
        self.nbytes = 0
        self._budget = budget
        self._clients: OrderedDict[ClientKey, list[KnownPrompt]] = OrderedDict()

    def explain(self, request: InferenceRequest, prepared: PreparedPrompt, sequence: Sequence) -> None:
        """Compare a request's prompt with its client's earlier ones, for the explanation of its choices."""
        adapter = None if request.applied is None else request.applied.name
        turns_end = prepared.checkpoints[-1] if prepared.checkpoints else 0
        prompt = KnownPrompt(pack(prefill_keys(sequence)), prepared.outline, turns_end)
        client = request.client.partition("@")[0].rstrip("#")  # whose programs are not always told apart
        difference = self.compare((client, adapter), prompt)
        for choice in (sequence, *sequence.parallel_samples):
            choice.is_explained, choice.difference = True, difference

    def compare(self, client: ClientKey, prompt: KnownPrompt) -> PromptDifference | None:
        """Return the difference from the client's nearest earlier prompt, and remember this one.

        Returns None if the client is not known.
        """
        known = self._clients.setdefault(client, [])
        self._clients.move_to_end(client)
        difference = None
        if known:
            nearest = _nearest(prompt, known)
            difference = find_difference(prompt, nearest)
            if difference.part is None and len(prompt) >= len(nearest):
                self._remove(known, nearest)
        if (size := _size(prompt)) <= self._budget // 2:
            known.append(prompt)
            self.nbytes += size
        self._shrink(known)
        return difference

    def _shrink(self, known: list[KnownPrompt]) -> None:
        while len(known) > _PROMPTS:  # the shortest of the older half, which is no session
            self._remove(known, min(known[: _PROMPTS // 2], key=len))
        while self.nbytes > self._budget or not next(iter(self._clients.values()), True):
            oldest, prompts = next(iter(self._clients.items()))
            if prompts:
                self._remove(prompts, prompts[0])
            if not prompts:
                del self._clients[oldest]

    def _remove(self, known: list[KnownPrompt], prompt: KnownPrompt) -> None:
        known.remove(prompt)
        self.nbytes -= _size(prompt)


def _nearest(prompt: KnownPrompt, known: GenericSequence[KnownPrompt]) -> KnownPrompt:
    """Return the prompt with most in common: parts, else tokens at the beginning; the latest of equals."""
    parts = prompt.sizes.items()
    equal = [sum(size for digest, size in parts if digest in earlier.sizes) for earlier in known]
    best = [earlier for earlier, size in zip(known, equal, strict=True) if size == max(equal)]
    if len(best) == 1:
        return best[0]
    return max(reversed(best), key=lambda earlier: common_length(prompt.tokens, earlier.tokens))


def _size(prompt: KnownPrompt) -> int:
    return len(prompt.tokens) + _PART_BYTES * (len(prompt.sizes) + 2)
