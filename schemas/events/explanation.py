"""Explanation of a request's cost: what was cached, why no more was, and what the request waited for.

An explanation holds counts, times and names of places in the client's own request, never text of a prompt.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.messages.messages import Role

PrefixEndReason = Literal["whole", "continued", "changed", "not_cached", "no_checkpoint", "first", "off"]
"""Reason why a cached prefix ended.

- `whole`: the whole prompt was cached.
- `continued`: what the prompt shares with the client's earlier one was cached, but for a few tokens at most;
  the rest is new.
- `changed`: a part of the prompt differs from the client's earlier one.
- `not_cached`: the shared beginning was not, or no longer, in the cache.
- `no_checkpoint`: the shared beginning is cached, but the model can continue only from an earlier place.
- `first`: the client has sent no earlier prompt since the model was loaded.
- `off`: the model, its settings or the request use no prefix cache.
"""

PromptPart = Literal["message", "tool", "system_prompt", "history", "template", "prompt"]
"""Kind of a part of a prompt: a message, the definition of a tool, the operator's system prompt, the oldest
messages (of which others were dropped), what the template writes (for its options, the date, or where a
message stands), or the text of a raw completion.
"""


@attrs.frozen
class PromptDifference:
    """First difference between a prompt and the nearest earlier one of the same client.

    Args:
        part: Kind of the first part that differs; None if one prompt continues the other.
        index: Index of the message or tool, from 0. A system prompt in a field of its own is message 0.
        shared: Number of tokens at the beginning that both prompts have.
        again: Spans of later tokens that the earlier prompt had too, as pairs of start and end.
    """

    part: PromptPart | None = None
    index: int | None = None
    role: Role | None = None
    shared: int = 0
    again: tuple[tuple[int, int], ...] = ()

    def repeated(self, cached: int, end: int) -> int:
        """Return the number of tokens from `cached` to `end` that the earlier prompt had too."""
        spans = ((0, self.shared), *self.again)
        return sum(max(0, min(last, end) - max(first, cached)) for first, last in spans)


@attrs.frozen
class PrefixEnd:
    """End of a prompt's cached prefix, and its cost.

    Args:
        reason: None if it is not known, as of a prompt that a remote has computed.
        part: See `PromptDifference`; likewise `index` and `role`.
        shared_tokens: Tokens that the prompt shares with the nearest earlier one, from the beginning.
        repeated_tokens: Tokens that were computed again, though the nearest earlier prompt had them.
        repeated_seconds: Their part of the seconds of prefill.
    """

    reason: PrefixEndReason | None = None
    part: PromptPart | None = None
    index: int | None = None
    role: Role | None = None
    shared_tokens: int = 0
    repeated_tokens: int = 0
    repeated_seconds: float = 0.0

    @property
    def place(self) -> str | None:
        return self.part if self.index is None or self.part is None else f"{self.part}[{self.index}]"


@attrs.frozen
class CachedTokens:
    """Prompt tokens that were not computed, by where they were.

    Args:
        memory: Tokens whose keys and values were in memory; `disk` likewise.
        images: Tokens of images that were computed, but whose features were cached.
    """

    memory: int = 0
    disk: int = 0
    images: int = 0


@attrs.frozen
class Waits:
    """Seconds that a request waited before its prompt was computed, by what it waited for.

    Args:
        model: Memory for its model, which other models had.
        slot: A slot among the model's running answers.
        preparing: Its own prompt's rendering and tokenization.
        memory: Memory for its keys and values, or a place among the model's rows.
        prefix: Another prompt with the same beginning, which was being computed.
        disk: Cached prefixes that were read from disk.
        turn: Prompts of other requests.
    """

    loading: float = 0.0
    model: float = 0.0
    slot: float = 0.0
    preparing: float = 0.0
    memory: float = 0.0
    prefix: float = 0.0
    disk: float = 0.0
    turn: float = 0.0

    def plus(self, other: Waits) -> Waits:
        names = [field.name for field in attrs.fields(Waits)]
        return Waits(**{name: getattr(self, name) + getattr(other, name) for name in names})


@attrs.frozen
class Preemptions:
    """Pauses of an answer whose memory was needed for others.

    Args:
        tokens: Tokens, of prompt and answer, that were computed again.
        seconds: Time from each pause until the answer went on.
    """

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def plus(self, other: Preemptions) -> Preemptions:
        return Preemptions(self.count + other.count, self.tokens + other.tokens, self.seconds + other.seconds)


@attrs.frozen
class Explanation:
    """Explanation of a choice, or of a request of several.

    Args:
        chosen: Reasons for which its model was chosen among those of a route; empty without one.
    """

    cached: CachedTokens = CachedTokens()
    prefix: PrefixEnd = PrefixEnd()
    waits: Waits = Waits()
    preempted: Preemptions = Preemptions()
    chosen: str = ""

    def plus(self, choice: Explanation) -> Explanation:
        """Return the explanation of this and another choice of the same request.

        The first choice's prompt and waits are those of the request.
        """
        return attrs.evolve(self, preempted=self.preempted.plus(choice.preempted))

    def log_fields(self) -> dict[str, Any]:
        """Return the figures as fields of a log line, without those that are zero."""
        prefix, preempted = self.prefix, self.preempted
        fields: dict[str, Any] = {
            "prefix_end": prefix.reason,
            "prefix_part": prefix.place,
            "prefix_role": prefix.role,
            "memory_tokens": self.cached.memory,
            "disk_tokens": self.cached.disk,
            "image_feature_tokens": self.cached.images,
            "shared_tokens": prefix.shared_tokens,
            "repeated_tokens": prefix.repeated_tokens,
            "repeated_seconds": round(prefix.repeated_seconds, 4),
            "preemptions": preempted.count,
            "preempted_tokens": preempted.tokens,
            "preempted_seconds": round(preempted.seconds, 4),
        }
        for name, spent in attrs.asdict(self.waits).items():
            fields[f"waited_{name}_seconds"] = round(spent, 4)
        return {name: value for name, value in fields.items() if value}
