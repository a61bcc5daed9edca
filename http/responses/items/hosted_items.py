"""Items of OpenAI's hosted tools in a conversation's history.

Their output is shown to the model as a call's result; content that only OpenAI's server could use is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.http.media.data_url import is_data_url
from greenroom.http.media.media_reader import MediaReader
from greenroom.http.responses.items.content_parts import content_part
from greenroom.schemas.messages.messages import ContentPart, JsonObject, TextPart, ToolCall
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.responses.parts import structure_part

SHELLS = {"local_shell_call": "local_shell", "shell_call": "shell"}


@attrs.frozen
class HostedCall:
    """A tool call that represents an item."""

    call: ToolCall


@attrs.frozen
class HostedResult:
    """The result of a tool call that represents an item."""

    call_id: str
    parts: tuple[ContentPart, ...]


def hosted_parts(item: JsonObject, field: str, media: MediaReader) -> Iterator[HostedCall | HostedResult]:
    """Yield the calls and results that represent an item; none for searches, tool lists and the like.

    Args:
        media: Media reader of the whole request.

    Raises:
        ProblemError: 400 that names the field.
    """
    match item["type"]:
        case "local_shell_call" | "shell_call" as kind:
            yield HostedCall(_call(_id(item, "call_id", field), SHELLS[kind], item.get("action")))
        case "apply_patch_call":
            yield HostedCall(_call(_id(item, "call_id", field), "apply_patch", item.get("operation")))
        case "local_shell_call_output" | "shell_call_output" | "apply_patch_call_output":
            yield HostedResult(_id(item, "call_id", field), (TextPart(_result(item)),))
        case "mcp_call":
            call_id = _id(item, "id", field)
            arguments = item.get("arguments")
            name = _id(item, "name", field)
            yield HostedCall(ToolCall(call_id, name, arguments if isinstance(arguments, str) else "{}"))
            if item.get("output") is not None or item.get("error") is not None:
                yield HostedResult(call_id, (TextPart(_result(item)),))
        case "code_interpreter_call":
            call_id = _id(item, "id", field)
            yield HostedCall(_call(call_id, "code_interpreter", {"code": item.get("code")}))
            yield HostedResult(call_id, _outputs(item, field, media))
        case "compaction_trigger":
            detail = f"`{field}` asks for a compaction, which `POST /v1/responses/compact` makes."
            raise invalid(detail, field, "unsupported_content")
        case "configuration_update":
            detail = f"`{field}` is not supported: set `reasoning` and `text` of the request."
            raise invalid(detail, field, "unsupported_content")
        case "computer_call" if item.get("call_id") is not None:
            yield HostedCall(_call(_id(item, "call_id", field), "computer", item.get("action")))
        case "computer_call_output":
            screen = _screenshot(item.get("output"), f"{field}.output", media)
            yield HostedResult(_id(item, "call_id", field), (screen,))
        case "image_generation_call" if isinstance(item.get("result"), str):
            call_id = _id(item, "id", field)
            yield HostedCall(_call(call_id, "image_generation", {"prompt": item.get("revised_prompt")}))
            yield HostedResult(call_id, (media.encoded_image(item["result"], f"{field}.result"),))


def _call(call_id: str, name: str, arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments or {}, ensure_ascii=False))


def _id(item: JsonObject, name: str, field: str) -> str:
    value = item.get(name)
    if value is None:
        raise missing(f"{field}.{name}")
    if not isinstance(value, str) or not value:
        raise invalid(f"`{field}.{name}` must be a string that is not empty.", f"{field}.{name}")
    return value


def _result(item: JsonObject) -> str:
    if item.get("error") is not None:
        return f"Error: {_text(item['error'])}"
    output = item.get("output")
    return str(item.get("status") or "") if output is None else _text(output)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _screenshot(output: Any, field: str, media: MediaReader) -> ContentPart:
    if not isinstance(output, dict):
        raise missing(field)
    return content_part(structure_part({"type": "computer_screenshot", **output}, field), media, field)


def _outputs(item: JsonObject, field: str, media: MediaReader) -> tuple[ContentPart, ...]:
    """Return the text output of executed code, and the images that are embedded as data URLs."""
    outputs = item.get("outputs")
    if not isinstance(outputs, list):
        return (TextPart(""),)
    pictures = {index for index, output in enumerate(outputs) if _is_picture(output)}
    text = _text([output for index, output in enumerate(outputs) if index not in pictures])
    images = (
        media.image(outputs[index]["url"], f"{field}.outputs[{index}].url")
        for index in sorted(pictures)
        # Other URLs point to files of the server that ran the code.
        if is_data_url(str(outputs[index].get("url")))
    )
    return (TextPart(text), *images)


def _is_picture(output: Any) -> bool:
    return isinstance(output, dict) and output.get("type") == "image"
