"""A request as the rows of a batch."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sequences.answer_logprobs import AnswerLogprobs
from greenroom.engine.sequences.sequence import OutputProcessor, Sequence
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.requests import InferenceRequest


def new_sequence(
    request: InferenceRequest,
    prepared: PreparedInput,
    output_processor: OutputProcessor,
    on_remove: Callable[[Sequence, list[Any], int | None], None],
    *,
    embedded: bool,
) -> Sequence:
    """The first choice of a request before its first token; the others are its twins.

    Args:
        on_leave: Told of each row that leaves a cache; see `Row`.
        embedded: Its prompt has embeddings of its own.
    """
    first, *twins = (_choice(request, prepared, output_processor, i) for i in range(prepared.parameters.n))
    for row in (first, *twins):
        row.on_remove = on_remove
        row.key = None if embedded else request.key  # equal tokens may stand for different images
    first.parallel_samples = tuple(twins)
    return first


def _choice(
    request: InferenceRequest,
    prepared: PreparedInput,
    output_processor: OutputProcessor,
    index: int,
) -> Sequence:
    parameters, matcher, end_tokens = prepared.parameters, prepared.matcher, prepared.stop_token_ids
    held_back = end_tokens if matcher is None else matcher.suppressible(end_tokens)
    return Sequence(
        request_id=request.id,
        prompt=prepared.tokens,
        max_tokens=prepared.max_tokens,
        stop_token_ids=end_tokens,
        sampling=SamplingParameters.of(parameters, held_back, index),
        detokenizer=output_processor.new_detokenizer(prepared),
        processor=output_processor.new_stream_processor(prepared, _new_call_id, index),
        checkpoints=prepared.checkpoints,
        matcher=matcher if matcher is None or index == 0 else matcher.clone(),
        index=index,
        logprobs=AnswerLogprobs(output_processor.token, parameters.top_logprobs)
        if parameters.logprobs
        else None,
    )


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
