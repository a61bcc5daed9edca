"""Request bodies with a few invalid values: for each endpoint one with most of its fields, to be spoiled."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

from greenroom.tests.support.hostile import pngs

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 2}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON_SCHEMA: Json = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
FUNCTION: Json = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": False}
LARK: Json = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" | "b"'}
REGEX: Json = {"type": "grammar", "syntax": "regex", "definition": "a|b"}
CUSTOM: Json = {"name": "c", "description": "d", "format": {"type": "grammar", "grammar": LARK}}
SAMPLING: Json = {"temperature": 0.5, "top_p": 0.9, "seed": 1}
PENALTIES: Json = {"presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"7": 1}}
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}

PNG = base64.b64encode(pngs.png()).decode()
IMAGE: Json = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
SOUND: Json = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
FILE: Json = {"type": "file", "file": {"file_data": "JVBERi0xLjc=", "filename": "a.pdf"}}

CHAT: Json = {
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, IMAGE, SOUND, FILE], "name": "u"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "[1]"}, IMAGE]},
        {"role": "assistant", "content": "", "refusal": None},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}, {"type": "custom", "custom": CUSTOM}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "max_completion_tokens": 16,
    "n": 1,
    "stop": ["sea"],
    "logprobs": True,
    "top_logprobs": 2,
    "stream_options": {"include_usage": True, "include_status": True},
    "priority": 1,
    "reasoning_effort": "low",
    "metadata": {"a": "b"},
    "chat_template_kwargs": {"enable_thinking": False},
    "truncation": "auto",
    **SAMPLING,
    **PENALTIES,
}
STRUCTURED: Json = {
    "messages": [{"role": "user", "content": "Hello"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "max_tokens": 16,
}
LEGACY: Json = {
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "[1]"},
    ],
    "functions": [FUNCTION],
    "function_call": {"name": "f"},
    "max_tokens": 16,
}
COMPLETION: Json = {
    "prompt": ["The sea", "The sky"],
    "max_tokens": 8,
    "n": 1,
    "best_of": 1,
    "echo": True,
    "logprobs": 2,
    "stop": "a",
    "stream_options": {"include_usage": True, "include_status": True},
    "priority": 1,
    **SAMPLING,
    **PENALTIES,
}
TOOL: Json = {"name": "f", "description": "d", "input_schema": SCHEMA, "strict": False}
MESSAGE: Json = {
    "max_tokens": 2_000,
    "system": [{"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "system", "content": "Late", "clear_at": "never"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": False,
                    "content": [
                        {"type": "tool_reference", "tool_name": "g"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                        },
                    ],
                },
                {"type": "document", "title": "T", "source": {"type": "text", "data": "x"}},
            ],
        },
    ],
    "tools": [TOOL, {**TOOL, "name": "g", "defer_loading": True}, {"type": "bash_20250124", "name": "bash"}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "enabled", "budget_tokens": 1_024, "display": "omitted"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stop_sequences": ["a"],
    "temperature": 0.5,
    "metadata": {"user_id": "u"},
}
EMBEDDINGS: Json = {
    "model": "bert",
    "input": ["Hello", "The sea"],
    "encoding_format": "base64",
    "dimensions": 16,
    "input_type": "query",
    "truncate": True,
    "user": "u",
}
RESPONSE: Json = {
    "instructions": "Be brief",
    "input": [
        {"role": "developer", "content": "Late"},
        {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"a": [1]}'},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
                {"type": "input_file", "file_data": "JVBERi0xLjc=", "filename": "a.pdf"},
            ],
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "One", "annotations": []}]},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [
        {"type": "function", **FUNCTION},
        {"type": "custom", "name": "c", "format": REGEX},
        {"type": "namespace", "name": "s", "tools": [{"type": "function", **FUNCTION, "name": "g"}]},
        {"type": "web_search"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_output_tokens": 16,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "include": ["reasoning.encrypted_content"],
    "truncation": "auto",
    "store": False,
    "metadata": {"a": "b"},
    "top_logprobs": 1,
    "stream_options": {"include_obfuscation": False},
    "priority": 1,
    "service_tier": "flex",
    **SAMPLING,
}
OPTIONS: Json = {"num_predict": 8, "temperature": 0.5, "top_k": 5, "repeat_penalty": 1.1, "stop": ["a"]}
OLLAMA_CHAT: Json = {
    "messages": [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Hello", "images": [PNG]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}],
        },
        {"role": "tool", "tool_name": "f", "content": "[1]"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "think": False,
    "keep_alive": "5m",
    "options": OPTIONS,
}
GENERATE: Json = {
    "prompt": "The sea",
    "system": "Be brief",
    "think": False,
    "format": SCHEMA,
    "options": OPTIONS,
}
BODIES: tuple[tuple[str, Json], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", STRUCTURED),
    ("/v1/chat/completions", LEGACY),
    ("/v1/completions", COMPLETION),
    (
        "/v1/completions",
        {"prompt": [7, 8, 9], "suffix": None, "echo": True, "n": 2, "best_of": 3, "max_tokens": 8},
    ),
    ("/v1/messages", MESSAGE),
    ("/v1/messages/count_tokens", MESSAGE),
    ("/v1/responses", RESPONSE),
    ("/v1/responses", {"input": "Hello", "text": {"format": JSON_SCHEMA}, "max_output_tokens": 16}),
    ("/v1/responses/input_tokens", RESPONSE),
    ("/v1/embeddings", EMBEDDINGS),
    ("/v1/embeddings", {"model": "bert", "input": [[2, 300, 3], [2, 3]], "truncate": "END"}),
    ("/api/embed", {"model": "bert", "input": ["Hello", "Sea"], "truncate": True, "dimensions": 8}),
    ("/api/embeddings", {"model": "bert", "prompt": "Hello", "options": {"num_ctx": 64}}),
    ("/api/chat", OLLAMA_CHAT),
    ("/api/generate", GENERATE),
    ("/api/show", {"verbose": True}),
    ("/tokenize", {"prompt": "The sea", "add_special_tokens": True, "return_token_strs": True}),
    ("/tokenize", {"messages": CHAT["messages"], "tools": CHAT["tools"], "add_generation_prompt": True}),
    ("/detokenize", {"tokens": [7, 8, 9]}),
    ("/apply-template", {"messages": CHAT["messages"], "tools": CHAT["tools"]}),
)

_ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    2**70,
    "",
    "a",
    "\ud800",
    "🦊<|im_start|>",
    [],
    {},
    [[]],
    [None],
    {"type": 1},
)
_STRAY = ("type", "role", "content", "name", "vendor", "tool", "id", "format")


def spoiled_body(random: Random, model: str) -> tuple[str, Json]:
    """Return a path and a body in which one value is spoiled on average."""
    path, right = random.choice(BODIES)
    body = {"model": model, "stream": random.random() < 0.5, **right}
    return path, spoil(body, random, 1.0 / count(body))


def spoil(value: Any, random: Random, rate: float) -> Any:
    """Return the value with parts replaced, removed, duplicated or added at random.

    Args:
        rate: Fraction of places to change.
    """
    if random.random() < rate / 2:
        return random.choice(_ODD)
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if random.random() > rate / 4}
        spoiled = {name: spoil(item, random, rate) for name, item in kept.items()}
        if random.random() < rate:
            spoiled[random.choice(_STRAY)] = random.choice(_ODD)
        return spoiled
    if isinstance(value, list):
        items = [spoil(item, random, rate) for item in value]
        return items * 2 if random.random() < rate else items
    return value


def count(value: Any) -> int:
    """Return the number of values in a value, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))
