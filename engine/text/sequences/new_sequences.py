"""Creation of a request's sequences, one for each choice."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequences.answer_logprobs import AnswerLogprobs
from greenroom.engine.text.sequences.answer_text import AnswerText
from greenroom.engine.text.sequences.metrics import SequenceMetrics
from greenroom.engine.text.sequences.output_processor import OutputProcessor
from greenroom.engine.text.sequences.prefix_key import PrefixKey
from greenroom.engine.text.sequences.prompt_features import PromptFeatures
from greenroom.engine.text.sequences.prompt_logprobs import PromptLogprobs
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest


def new_sequence(
    request: InferenceRequest,
    prepared: PreparedPrompt,
    output_processor: OutputProcessor,
    on_remove: Callable[[Sequence, list[Any], int | None], None],
    on_progress: Callable[[Sequence, list[Any], int | None], None],
    features: PromptFeatures | None = None,
) -> Sequence:
    """Create a request's first choice; the others become its parallel samples.

    Args:
        on_remove: Callback for a choice that is removed from a batch; see `Sequence`.
        on_progress: Callback during generation; see `Sequence`.
        features: Model inputs beside the prompt's tokens, such as images.
    """
    first, *others = (_choice(request, prepared, output_processor, i) for i in range(prepared.parameters.n))
    prompt_logprobs = _prompt_logprobs(prepared, output_processor)
    shares_prefixes = prompt_logprobs is None  # cached prefixes have no logits to score
    for choice in (first, *others):
        choice.on_remove, choice.on_progress = on_remove, on_progress
        choice.key = PrefixKey(request.adapter, request.cache_salt) if shares_prefixes else None
        choice.features = features
        choice.prompt_logprobs = prompt_logprobs
    first.parallel_samples = tuple(others)
    return first


def _prompt_logprobs(prepared: PreparedPrompt, output_processor: OutputProcessor) -> PromptLogprobs | None:
    echo, parameters = prepared.echo, prepared.parameters
    if echo is None or not echo.scored:
        return None
    return PromptLogprobs(
        prepared.tokens, echo, output_processor.token, parameters.top_logprobs, parameters.n
    )


def _choice(
    request: InferenceRequest,
    prepared: PreparedPrompt,
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
        max_tokens=max(1, prepared.max_tokens),
        prompt_only=not prepared.max_tokens,
        stop_token_ids=end_tokens,
        sampling=SamplingParameters.of(parameters, suppressible, index),
        text=AnswerText(
            output_processor.new_detokenizer(prepared),
            output_processor.new_stream_processor(prepared, _new_call_id, index),
            prepared.control_tokens,
            prepared.appendix,
        ),
        checkpoints=prepared.checkpoints,
        matcher=matcher if matcher is None or index == 0 else matcher.clone(),
        index=index,
        logprobs=logprobs,
        end_of_turn_ids=prepared.end_of_turn_ids,
        metrics=SequenceMetrics(drafted_tokens=prepared.predicted),
    )


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
