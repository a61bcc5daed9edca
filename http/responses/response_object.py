"""The response object: in answers, in events of its stream, and in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from greenroom.http.answering.collecting import (
    AnswerPart,
    CalledTool,
    CollectedChoice,
    Reasoning,
    worded_parts,
)
from greenroom.http.answering.explanation_body import explanation_body, sign
from greenroom.http.answering.tools import text_of
from greenroom.http.encoding.encoding import json_ascii, token_logprobs
from greenroom.schemas.events.events import Admitted, Finished, TokenLogprob
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import JsonObject, TextPart, ToolCall
from greenroom.schemas.problems import Problem
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING


@attrs.frozen
class ResponseEcho:
    """The request's members that its response repeats, and options of its format.

    Args:
        members: Members that every response has, and a few more if they were sent.
        encrypts_reasoning: True to add `encrypted_content` to reasoning items, which a client can send back.
        obfuscates: True to pad deltas, so that their length cannot be observed on the network.
        encoded: The members as JSON without the braces; encoded once, since every lifecycle event has them.
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
        """Return the echo with the parameters that the model used for absent ones."""
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
        if obfuscates is None:
            obfuscates = bool(response.get("stream_options", {}).get("include_obfuscation"))
        encrypts_reasoning = ENCRYPTED_REASONING in response.get("include", ())
        own = {*response_members(ResponseHead("", "", 0), "queued"), "dropped_messages"}
        members = {name: value for name, value in response.items() if name not in own}
        return cls(members, encrypts_reasoning, obfuscates)


@attrs.frozen
class ResponseHead:
    """The constant members of one response. `id`: the response's id, `resp_…`; `created`: Unix time of
    creation in seconds.
    """

    id: str
    model: str
    created: int


def encoded_response(echo: ResponseEcho, own: JsonObject) -> bytes:
    """Return a response as JSON."""
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
    """Return the members that are not echoed, for a complete answer."""
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
    match finished.reason:
        case "length":
            return "incomplete", finished.limit or "max_output_tokens"
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


class ResponseLife:
    """The state of a response while it is streamed.

    Args:
        clock: Clock with Unix time in seconds, for the time of completion.

    Attributes:
        echo: The response's echo, with the model's actual parameters once they are known.
        started: True if the first events have been sent.
        queued: True if the response waits in the background.
    """

    def __init__(self, echo: ResponseEcho, head: ResponseHead, clock: Callable[[], float]) -> None:
        self.echo = echo
        self.started = False
        self.queued = bool(echo.members["background"])
        self._head = head
        self._clock = clock
        self._dropped_messages = 0

    @property
    def state(self) -> str:
        """Status before the end: queued or in progress."""
        return "queued" if self.queued else "in_progress"

    def admit(self, admitted: Admitted) -> None:
        self._dropped_messages = admitted.dropped_messages
        self.echo = self.echo.answered_with(admitted.parameters)

    def encoded(self, status: str, output: Sequence[dict[str, Any]] = (), **members: Any) -> bytes:
        """Return the response as the `response` member of an event."""
        completed = int(self._clock()) if status == "completed" else None
        own = response_members(
            self._head,
            status,
            output=output,
            completed=completed,
            dropped_messages=self._dropped_messages,
            **members,
        )
        return b'"response":' + encoded_response(self.echo, own)


ItemStatus = Literal["in_progress", "completed", "incomplete"]


@attrs.frozen
class CallKinds:
    """The kinds of a request's tools: functions or custom tools. `custom`: names of custom tools, whose input
    is text instead of JSON.
    """

    custom: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: Sequence[JsonObject]) -> CallKinds:
        return cls(frozenset(str(tool["name"]) for tool in tools if tool["type"] == "custom"))


def output_items(
    choice: CollectedChoice, response_id: str, calls: CallKinds, *, encrypts_reasoning: bool
) -> list[dict[str, Any]]:
    """Return the items of a complete answer, at least one. White space between other items is dropped."""
    parts: Sequence[AnswerPart] = worded_parts(choice.parts) or (TextPart(""),)
    is_cut = choice.finished.reason in ("length", "cancelled")
    items: list[dict[str, Any]] = []
    logprobs = _logprobs_of_texts(choice)
    for index, part in enumerate(parts):
        status: ItemStatus = "incomplete" if is_cut and index == len(parts) - 1 else "completed"
        match part:
            case TextPart(text):
                ident = item_id("msg", response_id, index)
                items.append(message_item(ident, text, status, next(logprobs, ())))
            case Reasoning(text):
                encrypted = sign(text, hidden=True) if encrypts_reasoning else None
                items.append(reasoning_item(item_id("rs", response_id, index), text, status, encrypted))
            case ToolCall(name=name, arguments=arguments):
                if name in calls.custom:
                    part = attrs.evolve(part, arguments=text_of(arguments))
                items.append(call_item(part, response_id, index, status, calls))
            case ToolsListed():
                items.append(list_item(part, response_id, index))
            case CalledTool(call, result):
                items.append(mcp_call_item(call, result, response_id, index))
            case ApprovalWanted():
                items.append(approval_item(part))
    return items


def item_id(prefix: str, response_id: str, index: int) -> str:
    """Return an item's id, which depends only on the response's id and the item's index."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def message_item(
    ident: str, text: str, status: ItemStatus, logprobs: Sequence[TokenLogprob] = ()
) -> dict[str, Any]:
    content = [output_text(text, logprobs)]
    return {"id": ident, "type": "message", "status": status, "role": "assistant", "content": content}


def output_text(text: str, logprobs: Sequence[TokenLogprob] = ()) -> dict[str, Any]:
    listed = json.loads(token_logprobs(logprobs)) if logprobs else []
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": listed}


def reasoning_item(ident: str, reasoning: str, status: ItemStatus, encrypted: str | None) -> dict[str, Any]:
    """Return a reasoning item.

    Its text is in the summary, since that is the part most clients show.

    Args:
        encrypted: Encrypted content that the client can send back, if requested.
    """
    item: dict[str, Any] = {
        "id": ident,
        "type": "reasoning",
        "status": status,
        "summary": [summary_text(reasoning)],
    }
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def summary_text(reasoning: str) -> dict[str, str]:
    return {"type": "summary_text", "text": reasoning}


def call_item(
    call: ToolCall, response_id: str, index: int, status: ItemStatus, calls: CallKinds
) -> dict[str, Any]:
    """Return the call item of a function, or of a custom tool, whose arguments are its text input."""
    common = {"status": status, "call_id": call.id, "name": call.name}
    if call.name in calls.custom:
        ident = item_id("ctc", response_id, index)
        return {"id": ident, "type": "custom_tool_call", **common, "input": call.arguments}
    ident = item_id("fc", response_id, index)
    return {"id": ident, "type": "function_call", **common, "arguments": call.arguments}


def list_item(listed: ToolsListed, response_id: str, index: int) -> dict[str, Any]:
    """Return the item of an MCP server's tools; one that could not be listed has an error."""
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.parameters),
            "annotations": None,
        }
        for tool in listed.tools
    ]
    ident = item_id("mcpl", response_id, index)
    item = {"id": ident, "type": "mcp_list_tools", "server_label": listed.server}
    return {**item, "tools": tools, "error": listed.error or None}


def mcp_call_item(
    call: ServerCall, result: ToolResult | None, response_id: str, index: int
) -> dict[str, Any]:
    """Return the item of a call that this server makes, with its result once there is one."""
    status = "in_progress" if result is None else "failed" if result.failed else "completed"
    text = None if result is None else result.text
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {
        "id": item_id("mcp", response_id, index),
        "type": "mcp_call",
        "status": status,
        "approval_request_id": call.approval,
        "arguments": call.arguments,
        "error": error if status == "failed" else None,
        "name": call.name,
        "output": text if status == "completed" else None,
        "seconds": None if result is None else result.seconds,
        "server_label": call.server,
    }


def approval_item(wanted: ApprovalWanted) -> dict[str, Any]:
    members = {"id": wanted.id, "type": "mcp_approval_request", "server_label": wanted.server}
    return {**members, "name": wanted.name, "arguments": wanted.arguments}


def _logprobs_of_texts(choice: CollectedChoice) -> Iterator[Sequence[TokenLogprob]]:
    """Yield the tokens' logprobs of each text that is not blank, in order."""
    texts = [part.text for part in choice.parts if isinstance(part, TextPart)]
    unwritten: Sequence[TokenLogprob] = choice.logprobs
    for place, text in enumerate(texts):
        count = _tokens_of(text, unwritten) if place < len(texts) - 1 else len(unwritten)
        if text.strip():
            yield unwritten[:count]
        unwritten = unwritten[count:]


def _tokens_of(text: str, logprobs: Sequence[TokenLogprob]) -> int:
    room, count = len(text.encode("utf-8", "replace")), 0
    while room > 0 and count < len(logprobs):
        room -= len(logprobs[count].token.bytes)
        count += 1
    return count
