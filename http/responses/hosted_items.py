"""Items of tools that only OpenAI's server knows, as a conversation's history may hold them.

What they brought is shown to the model as the result of a call; what only that server could use is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.schemas.messages import JsonObject, ToolCall
from greenroom.schemas.problems import invalid, missing

SHELLS = {"local_shell_call": "local_shell", "shell_call": "shell"}


@attrs.frozen
class HostedCall:
    """A call that stands for an item."""

    call: ToolCall


@attrs.frozen
class HostedResult:
    """What a call has brought."""

    call_id: str
    text: str


def hosted_parts(item: JsonObject, field: str) -> Iterator[HostedCall | HostedResult]:
    """Return what a model is shown of an item; nothing of searches, lists of tools, approvals and the like.

    Raises:
        ProblemError: 400 that names the field.
    """
    match item["type"]:
        case "local_shell_call" | "shell_call" as kind:
            yield HostedCall(_call(_id(item, "call_id", field), SHELLS[kind], item.get("action")))
        case "apply_patch_call":
            yield HostedCall(_call(_id(item, "call_id", field), "apply_patch", item.get("operation")))
        case "local_shell_call_output" | "shell_call_output" | "apply_patch_call_output":
            yield HostedResult(_id(item, "call_id", field), _result(item))
        case "mcp_call":
            call_id = _id(item, "id", field)
            arguments = item.get("arguments")
            name = _id(item, "name", field)
            yield HostedCall(ToolCall(call_id, name, arguments if isinstance(arguments, str) else "{}"))
            if item.get("output") is not None or item.get("error") is not None:
                yield HostedResult(call_id, _result(item))
        case "code_interpreter_call":
            call_id = _id(item, "id", field)
            yield HostedCall(_call(call_id, "code_interpreter", {"code": item.get("code")}))
            yield HostedResult(call_id, _text(_without_images(item.get("outputs"))))
        case "compaction_trigger":
            detail = f"`{field}` asks for a compaction, which `POST /v1/responses/compact` makes."
            raise invalid(detail, field, "unsupported_content")
        case "configuration_update":
            detail = f"`{field}` is not supported: set `reasoning` and `text` of the request."
            raise invalid(detail, field, "unsupported_content")
        case "computer_call_output":
            detail = f"`{field}` is a picture, but no model that is served here reads anything but text."
            raise invalid(detail, field, "unsupported_content")


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


def _without_images(outputs: Any) -> Any:
    if not isinstance(outputs, list):
        return None
    return [output for output in outputs if not (isinstance(output, dict) and output.get("type") == "image")]
