"""Chats and raw text, asked of a remote: request bodies in the words of each protocol."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from greenroom.actors.remotes.chat_answers import ChatReader
from greenroom.actors.remotes.remote_call import Call, given, parameters_of, unsupported
from greenroom.schemas.file_formats import image_format
from greenroom.schemas.messages import messages as said
from greenroom.schemas.messages import requests as asked
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import Message
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.settings.remotes import Remote

DEFAULT_TOKENS = 8_192
"""Length limit of an answer of Anthropic's where a request sets none, which the protocol does not allow."""
LEAST_THINKING = 1_024
BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768}
_CHOICES = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}
_NO_PARAMETERS = {"type": "object", "properties": {}}
_GUIDED: dict[type[Any], tuple[str, str]] = {
    asked.RegexFormat: ("guided_regex", "pattern"),
    asked.ChoiceFormat: ("guided_choice", "choices"),
    asked.LarkFormat: ("guided_grammar", "grammar"),
}
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
_NAMES = {
    "anthropic": {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop_sequences"},
    "responses": {
        **{name: name for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty")},
        "max_tokens": "max_output_tokens",
    },
}
"""Parameters that a protocol has, with its names for them; what a client sets beyond them is refused."""
_ELSE = {"anthropic": ("max_tokens", "continue_final_message"), "responses": ("verbosity",)}
"""Further wishes that it can express."""


def chat_call(request: InferenceRequest, chat: ChatInput, model: str, remote: Remote) -> Call:
    """Return the call of a chat with the model of this name. Raises ProblemError: 400: it cannot be asked."""
    api = remote.api
    if api in _NAMES:
        _refuse_others(request, chat, api)
    makers = {"anthropic": (_message_body, "/messages"), "responses": (_response_body, "/responses")}
    make, path = makers.get(api, (_chat_body, "/chat/completions"))
    body = {"model": model, "stream": True, **make(request, chat, remote), **_tools(chat, api)}
    reader = ChatReader(api, request.choices)
    return Call(path, body, reader.read, "events", reader.end)


def raw_call(request: InferenceRequest, raw: RawInput, model: str, remote: Remote) -> Call:
    """Return the call of a completion of raw text; it raises as `chat_call` does."""
    if raw.echo or raw.scored is not None or request.response_format is not None:
        raise unsupported("An echo of the prompt, or a format of raw text,", remote.api)
    values = _parameters(request, "max_tokens")
    top = values.pop("top_logprobs", 0)
    if values.pop("logprobs", False):
        values["logprobs"] = top
    prompt = raw.prompt if isinstance(raw.prompt, str) else list(raw.prompt)
    asks: dict[str, Any] = {"model": model, "prompt": prompt, "suffix": raw.suffix or None, **_STREAMED}
    reader = ChatReader(remote.api, request.choices)
    return Call("/completions", {**given(asks), **values}, reader.read, "events", reader.end)


def _refuse_others(request: InferenceRequest, chat: ChatInput, api: str) -> None:
    """Raise ProblemError (400) for what a client has set, and the protocol lacks."""
    neutral: Any = GenerationParameters()
    names = [name for name, value in request.overrides.items() if value != getattr(neutral, name)]
    of_chat = {
        "chat_template_kwargs": chat.template_options,
        "continue_final_message": chat.continue_final_message,
        "verbosity": chat.verbosity != "medium",
    }
    names += [name for name, is_set in of_chat.items() if is_set]
    known = {*_NAMES[api], *_ELSE[api], "thinking_budget"}
    if left_out := [f"`{name}`" for name in names if name not in known]:
        raise unsupported(", ".join(left_out), api)


def _tools(chat: ChatInput, api: str) -> dict[str, Any]:
    """Return the members of a body about the tools that the remote may call."""
    choice, parallel, is_message = chat.tool_choice, chat.parallel_tool_calls, api == "anthropic"
    # Anthropic's earlier calls need their tools even where none may be called now.
    takes_all = choice.mode == "named" or (choice.mode == "none" and is_message)
    listed = [_tool(each, api) for each in (chat.tools if takes_all else choice.callable(chat.tools))]
    named = {"name": choice.name} if choice.mode == "named" else {}
    wish: Any = {"type": _CHOICES[choice.mode], **named} if is_message else choice.mode
    if is_message and not parallel and choice.mode != "none":
        wish["disable_parallel_tool_use"] = True
    told = {"parallel_tool_calls": parallel} if api == "responses" or not (is_message or parallel) else {}
    wish = _function(named, api) if named and not is_message else wish
    return {"tools": listed, "tool_choice": wish, **told} if listed else {}


def _tool(tool: said.Tool, api: str) -> dict[str, Any]:
    members: dict[str, Any] = {"name": tool.name, "description": tool.description}
    members["input_schema" if api == "anthropic" else "parameters"] = tool.parameters or _NO_PARAMETERS
    if api == "responses" or (tool.strict and api != "anthropic"):  # the former's default is to be strict
        members["strict"] = tool.strict
    return members if api == "anthropic" else _function(members, api)


def _function(members: dict[str, Any], api: str) -> dict[str, Any]:
    return {"type": "function", **(members if api == "responses" else {"function": members})}


def _format(wanted: asked.ResponseFormat | None, api: str) -> dict[str, Any] | None:
    """Return the format of an answer; None for none."""
    match wanted:
        case None:
            return None
        case asked.JsonSchemaFormat(schema, name, strict):
            form = {"schema": schema}
            if api != "anthropic":
                form = {"name": name or "answer", "schema": schema, "strict": strict}
            is_flat = api in ("anthropic", "responses")
            return {"type": "json_schema", **(form if is_flat else {"json_schema": form})}
        case asked.JsonObjectFormat() if api != "anthropic":
            return {"type": "json_object"}
    raise unsupported(f"`{wanted.param}`", api)


def _part(part: said.ContentPart, api: str, role: str = "user") -> dict[str, Any]:
    """Return a part of a message; a response's texts have their direction."""
    if isinstance(part, said.TextPart):
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": kind if api == "responses" else "text", "text": part.text}
    data = b64encode(part.data).decode()
    if isinstance(part, said.AudioPart):
        if api == "anthropic":
            raise unsupported("Sound in a message", api)
        sound = {"data": data, "format": "wav" if part.data[:4] == b"RIFF" else "mp3"}
        return {"type": "input_audio", "input_audio": sound}
    is_image = isinstance(part, said.ImagePart)
    media_type = f"image/{image_format(part.data) or 'png'}" if is_image else "application/pdf"
    if api == "anthropic":
        source = {"type": "base64", "media_type": media_type, "data": data}
        return {"type": "image" if is_image else "document", "source": source}
    url = f"data:{media_type};base64,{data}"
    if isinstance(part, said.DocumentPart):
        file = {"filename": part.name or "document.pdf", "file_data": url}
        return {"type": "input_file", **file} if api == "responses" else {"type": "file", "file": file}
    if api == "responses":
        return {"type": "input_image", "image_url": url, "detail": part.detail}
    return {"type": "image_url", "image_url": {"url": url, "detail": part.detail}}


# OpenAI's chats, and a Greenroom's, which take more.


def _chat_body(request: InferenceRequest, chat: ChatInput, remote: Remote) -> dict[str, Any]:
    is_own, is_official = remote.api == "greenroom", urlsplit(remote.url).hostname == "api.openai.com"
    wish, wanted = chat.thinking, request.response_format
    longest = "max_completion_tokens" if is_official else "max_tokens"
    body = {"messages": [_message(each) for each in chat.messages], **_parameters(request, longest)}
    if is_own and (guided := _GUIDED.get(type(wanted))):
        body[guided[0]] = getattr(wanted, guided[1])
    else:
        body |= given({"response_format": _format(wanted, remote.api)})
    if effort := "none" if wish.enabled is False else wish.effort:
        body["reasoning_effort"] = effort
    elif wish.enabled and is_own:
        body["enable_thinking"] = True
    if chat.verbosity != "medium":
        body["verbosity"] = chat.verbosity
    if chat.continue_final_message or chat.template_options:
        if not is_own:
            raise unsupported("`continue_final_message` and `chat_template_kwargs`", remote.api)
        body["continue_final_message"] = chat.continue_final_message
        body["chat_template_kwargs"] = dict(chat.template_options)
    if request.overflow == "drop_oldest" and is_own:
        body["truncation"] = "auto"
    return {**body, **_STREAMED}


def _parameters(request: InferenceRequest, longest: str) -> dict[str, Any]:
    values = parameters_of(request)
    if (most := values.pop("max_tokens", None)) is not None:
        values[longest] = most
    if "logit_bias" in values:
        values["logit_bias"] = {str(token): bias for token, bias in values["logit_bias"]}
    return values


def _message(message: Message) -> dict[str, Any]:
    content: Any = [_part(part, "openai") for part in message.content] if message.media else message.text
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    further = {
        "name": message.name if message.role != "tool" else None,
        "tool_call_id": message.tool_call_id,
        "tool_calls": calls or None,
        "reasoning_content": message.reasoning or None,
    }
    return {"role": message.role, "content": (content or None) if calls else content, **given(further)}


# Anthropic's messages.


def _message_body(request: InferenceRequest, chat: ChatInput, remote: Remote) -> dict[str, Any]:
    values, turns, form = parameters_of(request), _turns(chat), _format(request.response_format, remote.api)
    most = values.get("max_tokens") or DEFAULT_TOKENS
    thinking = _thinking(chat, values, most, turns)
    if "max_tokens" in thinking:  # reasoning allows hardly any sampling: the operator's is left out
        values = dict(request.overrides)
    body = {there: values.get(here) for here, there in _NAMES["anthropic"].items()}
    body["stop_sequences"] = body["stop_sequences"] or None
    body["system"] = "\n\n".join(each.text for each in chat.messages if each.role == "system") or None
    body["output_config"] = None if form is None else {"format": form}
    return {"max_tokens": most, "messages": turns, **given(body), **thinking}


def _thinking(chat: ChatInput, values: dict[str, Any], most: int, turns: list[Any]) -> dict[str, Any]:
    wish, budget = chat.thinking, values.get("thinking_budget")
    if wish.enabled is False or budget == 0:
        return {"thinking": {"type": "disabled"}}
    # Reasoning before a call would have to come back with its signature, which is not kept.
    has_results = any(block["type"] == "tool_result" for turn in turns[-1:] for block in turn["content"])
    if has_results or (not wish.enabled and budget is None):
        return {}
    asked = max(LEAST_THINKING, BUDGETS[wish.effort or "medium"] if budget is None else budget)
    # The answer's limit counts the reasoning, too.
    return {"thinking": {"type": "enabled", "budget_tokens": asked}, "max_tokens": most + asked}


def _turns(chat: ChatInput) -> list[dict[str, Any]]:
    """Return the turns, in which results of tools are the user's, and no role speaks twice in a row."""
    turns: list[dict[str, Any]] = []
    for message in (each for each in chat.messages if each.role != "system"):
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        blocks = [_part(part, "anthropic") for part in message.content if part != said.TextPart("")]
        if message.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}]
        for call in message.tool_calls:
            arguments: Any = call.arguments or "{}"
            with suppress(ValueError, RecursionError):
                arguments = msgspec.json.decode(arguments)  # unlike `json` it takes no `NaN`
            members = arguments if isinstance(arguments, dict) else {"input": arguments}
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": members})
        turns[-1]["content"] += blocks
    return turns


# OpenAI's responses.


def _response_body(request: InferenceRequest, chat: ChatInput, remote: Remote) -> dict[str, Any]:
    values = parameters_of(request)
    effort, budget = chat.thinking.effort, values.get("thinking_budget")
    if effort is None and budget is not None:
        effort = "low" if budget <= BUDGETS["low"] else "medium" if budget <= BUDGETS["medium"] else "high"
    reasoning = {"effort": effort, "summary": "auto"} if effort is not None else None
    text: dict[str, Any] = {} if chat.verbosity == "medium" else {"verbosity": chat.verbosity}
    text |= given({"format": _format(request.response_format, remote.api)})
    body = {there: values.get(here) for here, there in _NAMES["responses"].items()}
    body["input"] = [item for message in chat.messages for item in _items(message)]
    body["reasoning"] = {"effort": "none"} if chat.thinking.enabled is False else reasoning
    return {"store": False, **given({**body, "text": text or None})}


def _items(message: Message) -> Iterator[dict[str, Any]]:
    parts = [_part(part, "responses", message.role) for part in message.content]
    if message.role == "tool":
        output = parts if message.media else message.text
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
    elif parts:
        yield {"type": "message", "role": message.role, "content": parts}
    for call in message.tool_calls:
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call", **called}
