"""The response object: in answers, in events of its stream, and in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.answering.explanation_body import explanation_body
from greenroom.http.encoding.json_encoding import json_ascii
from greenroom.http.responses.output.output_items import CallKinds, output_items
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import Problem
from greenroom.schemas.responses.requests import ENCRYPTED_REASONING

ECHOED = (
    "previous_response_id",
    "instructions",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
)
"""Members that every response repeats from its request."""

ECHOED_IF_SENT = ("conversation", "user", "prompt_cache_retention", "include", "stream_options")


@attrs.frozen
class ResponseEcho:
    """The request's members that its response repeats, and options of its format.

    Args:
        members: Those of `ECHOED`, and those of `ECHOED_IF_SENT` that were sent.
        encrypts_reasoning: True to add `encrypted_content` to reasoning items, which a client can send back.
        obfuscates: True to pad deltas, so that their length cannot be observed on the network.
        encoded: The members as JSON without the braces; encoded once, since every lifecycle event has them.
        calls: Kinds of the request's tools.
    """

    members: Mapping[str, Any]
    encrypts_reasoning: bool = False
    obfuscates: bool = False
    encoded: bytes = attrs.field(init=False, eq=False, repr=False)
    calls: CallKinds = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "encoded", json_ascii(self.members)[1:-1])
        object.__setattr__(self, "calls", CallKinds.of(self.members["tools"]))

    def answered_with(self, parameters: GenerationParameters | None) -> ResponseEcho:
        """Return the echo with the parameters that the model used for absent ones.

        Args:
            parameters: Parameters resolved for the answer; None if not known.
        """
        if parameters is None:
            return self
        used = {"temperature": parameters.temperature, "top_p": parameters.top_p}
        if used == {name: self.members[name] for name in used}:
            return self
        return attrs.evolve(self, members={**self.members, **used})

    @classmethod
    def of(cls, response: JsonObject, *, obfuscates: bool | None = None) -> ResponseEcho:
        """Return the echo in a stored response.

        Args:
            obfuscates: Overrides the request's option; None keeps it.
        """
        names = (*ECHOED, *(name for name in ECHOED_IF_SENT if name in response))
        if obfuscates is None:
            obfuscates = bool(response.get("stream_options", {}).get("include_obfuscation"))
        encrypts_reasoning = ENCRYPTED_REASONING in response.get("include", ())
        return cls({name: response[name] for name in names}, encrypts_reasoning, obfuscates)


@attrs.frozen
class ResponseHead:
    """The constant members of one response.

    Args:
        id: The response's id, `resp_…`.
        model: Name of the model.
        created: Unix time of creation in seconds.
    """

    id: str
    model: str
    created: int


def encoded_response(echo: ResponseEcho, own: JsonObject) -> bytes:
    """Return a response as JSON.

    Args:
        own: Members that are not echoed (`response_members`).
    """
    return b"%b,%b}" % (json_ascii(own)[:-1], echo.encoded)


def response_members(
    head: ResponseHead,
    status: str,
    *,
    completed: int | None = None,
    output: Sequence[JsonObject] = (),
    finished: Finished | None = None,
    problem: Problem | None = None,
    incomplete: str | None = None,
    dropped_messages: int = 0,
) -> dict[str, Any]:
    """Return the members of a response that are not echoed.

    Args:
        status: `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`.
        completed: Unix time of completion in seconds.
        output: The response's items.
        finished: End of the answer, with its usage.
        problem: Reason of a failure.
        incomplete: Reason of an incomplete response.
        dropped_messages: Number of the oldest messages dropped from the prompt.
    """
    members = {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "completed_at": completed if status == "completed" else None,
        "status": status,
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "model": head.model,
        "output": list(output),
        "error": None if problem is None else response_error(problem),
        "usage": None if finished is None else usage_object(finished),
    }
    return {**members, "dropped_messages": dropped_messages} if dropped_messages else members


def answered_members(
    echo: ResponseEcho, head: ResponseHead, choice: CollectedChoice, completed: int
) -> dict[str, Any]:
    """Return the members that are not echoed, for a complete answer.

    Args:
        completed: Unix time of completion in seconds.
    """
    status, incomplete = ending(choice.finished)
    return response_members(
        head,
        status,
        completed=completed,
        output=output_items(choice, head.id, echo.calls, encrypts_reasoning=echo.encrypts_reasoning),
        finished=choice.finished,
        incomplete=incomplete,
        dropped_messages=choice.dropped_messages,
    )


def ending(finished: Finished) -> tuple[str, str | None]:
    """Return the status of a finished response, and the reason if it is incomplete."""
    match finished.reason:
        case "length":
            return "incomplete", "max_output_tokens"
        case "cancelled":
            return "cancelled", None
        case _:
            return "completed", None


def usage_object(finished: Finished) -> dict[str, Any]:
    """Return the `usage` of a response, with its explanation and seconds if the client asked for them."""
    usage = finished.usage
    members = {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "output_tokens": usage.generated,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.generated,
    }
    if finished.explanation is None:
        return members
    seconds = {name: round(spent, 4) for name, spent in attrs.asdict(finished.timing).items()}
    return {**members, "greenroom": {**explanation_body(finished.explanation), "seconds": seconds}}


def response_error(problem: Problem) -> dict[str, str]:
    """Return the `error` of a response; only a too long prompt has a code of its own among client errors."""
    code = problem.code if problem.code == "context_length_exceeded" else "invalid_prompt"
    return {"code": code if problem.status < 500 else "server_error", "message": problem.detail}
