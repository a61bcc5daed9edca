"""Parameters that OpenAI's clients may set, and refused ones."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.openai.chunk_stream import (
    CHAT_PARAMETERS,
    COMPLETION_PARAMETERS,
    UNSUPPORTED_IN_CHAT,
    UNSUPPORTED_IN_COMPLETIONS,
)
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.problems import ProblemError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "a", "format": "mp3"}),
        ("prompt_logprobs", 1),
        ("return_token_ids", True),
        ("return_tokens_as_token_ids", True),
        ("echo", True),
        ("web_search_options", {}),
        ("service_tier", "priority"),
    ],
)
def test_a_parameter_that_is_not_honoured_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ProblemError) as refused:
        refuse_unsupported({"model": "m", name: value}, UNSUPPORTED_IN_CHAT)
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.param) == (400, "unsupported_parameter", name)


def test_neutral_values_are_accepted() -> None:
    for table in (UNSUPPORTED_IN_CHAT, UNSUPPORTED_IN_COMPLETIONS):
        refuse_unsupported(dict.fromkeys(table), table)
        for name, neutral in table.items():
            for value in neutral:
                refuse_unsupported({name: value}, table)
    refuse_unsupported({"service_tier": "auto", "vendor": object()}, UNSUPPORTED_IN_CHAT)


def test_every_parameter_can_be_set_in_a_chat_and_most_for_raw_prompts() -> None:
    fields = set(attrs.fields_dict(GenerationParameters))
    assert set(CHAT_PARAMETERS.values()) == fields
    assert fields - set(COMPLETION_PARAMETERS.values()) == {"thinking_budget", "logprobs", "top_logprobs"}
