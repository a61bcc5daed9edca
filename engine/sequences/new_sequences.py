"""A request as sequences, one for each choice."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sequences.answer_logprobs import AnswerLogprobs
from greenroom.engine.sequences.output_processor import OutputProcessor
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.requests import InferenceRequest


def new_sequence(
    request: InferenceRequest,
    prepared: PreparedInput,
    output_processor: OutputProcessor,
    on_remove: Callable[[Sequence, list[Any], int | None], None],
    on_progress: Callable[[Sequence, list[Any], int | None], None],
    *,
    embedded: bool,
) -> Sequence:
    """Return the first choice of a request; the others are its parallel samples.

    Args:
        on_remove: Called when a choice is removed from a batch; see `Sequence`.
        on_progress: Called while its answer goes on.
        embedded: The prompt has embeddings of its own.
    """
    first, *others = (_choice(request, prepared, output_processor, i) for i in range(prepared.parameters.n))
    for choice in (first, *others):
        choice.on_remove, choice.on_progress = on_remove, on_progress
        choice.key = None if embedded else request.key  # equal tokens may stand for different images
    first.parallel_samples = tuple(others)
    return first


def _choice(
    request: InferenceRequest,
    prepared: PreparedInput,
    output_processor: OutputProcessor,
    index: int,
) -> Sequence:
    parameters, matcher, end_tokens = prepared.parameters, prepared.matcher, prepared.stop_token_ids
    suppressible = end_tokens if matcher is None else matcher.suppressible(end_tokens)
    logprobs = None
    if parameters.logprobs:
        logprobs = AnswerLogprobs(output_processor.token, parameters.top_logprobs)
    return Sequence(
        request_id=request.id,
        prompt=prepared.tokens,
        max_tokens=prepared.max_tokens,
        stop_token_ids=end_tokens,
        sampling=SamplingParameters.of(parameters, suppressible, index),
        detokenizer=output_processor.new_detokenizer(prepared),
        processor=output_processor.new_stream_processor(prepared, _new_call_id, index),
        checkpoints=prepared.checkpoints,
        matcher=matcher if matcher is None or index == 0 else matcher.clone(),
        index=index,
        logprobs=logprobs,
        control_tokens=prepared.control_tokens,
        end_of_turn_ids=prepared.end_of_turn_ids,
    )


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
