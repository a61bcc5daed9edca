"""Explanation of a sequence's cost, while it is computed and in its last event."""

from __future__ import annotations

import attrs

from greenroom.engine.text.explanation.prefix_end import explain_prefix_end
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.explanation import Explanation


def explained(sequence: Sequence, event: InferenceEvent) -> InferenceEvent:
    """Return an event, with the explanation of its sequence if it is the last one."""
    if not sequence.is_explained or not isinstance(event, Finished | Failed):
        return event
    return attrs.evolve(event, explanation=explain_sequence(sequence))


def explain_sequence(sequence: Sequence) -> Explanation:
    """Return the explanation of what a sequence has cost so far."""
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
