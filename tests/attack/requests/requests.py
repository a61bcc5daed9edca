"""Well-formed API requests with a few hostile values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st

from greenroom.tests.attack.requests.endpoints import BODIES, PATHS, bases
from greenroom.tests.attack.requests.grammars import GRAMMARS, PATTERNS
from greenroom.tests.attack.requests.json_pieces import Bytes, Literal, Made, Members, Nested, Repeated, Text
from greenroom.tests.attack.requests.schemas import SCHEMAS
from greenroom.tests.attack.requests.steps import Call

SIZES = st.one_of(st.integers(1, 40), st.sampled_from([100, 500, 1_500, 5_000, 20_000]))
LENGTHS = st.sampled_from([1, 100, 10_000, 300_000, 1_000_000, 3_000_000])
"""Lengths of arrays and texts whose size alone is the attack."""

OPTIONS = ("num_predict", "num_ctx", "temperature", "top_k", "repeat_penalty", "seed", "stop", "num_keep")
"""Ollama's sampling parameters, which go into a nested object."""

Json = st.SearchStrategy[Any]
T = TypeVar("T")


def _made(makers: Any) -> Json:
    return st.builds(Made, st.sampled_from(sorted(makers)), SIZES)


def _structured_outputs() -> st.SearchStrategy[dict[str, Any]]:
    schemas = _combined_schemas()
    made: list[st.SearchStrategy[dict[str, Any]]] = [
        schemas.map(partial(_form, form)) for form in (*FORMATS, "guided_json", "format")
    ]
    return st.one_of(
        *made,
        _made(GRAMMARS).map(lambda grammar: {"guided_grammar": grammar}),
        st.builds(_custom_tool, st.sampled_from(["lark", "regex"]), _made({**GRAMMARS, **PATTERNS})),
        _made(PATTERNS).map(lambda pattern: {"guided_regex": pattern}),
        SIZES.map(lambda size: {"guided_choice": [f"choice {i}" for i in range(size)]}),
        st.builds(_tools, schemas, st.integers(1, 30), st.sampled_from(["auto", "required"])),
        st.builds(_flat_tools, schemas, st.integers(1, 30), st.sampled_from(["auto", "required"])),
        st.builds(_functions, schemas, st.integers(1, 30), st.sampled_from(["auto", {"name": "tool_0"}])),
        st.builds(_anthropic_tools, schemas, st.integers(1, 30), st.sampled_from(["auto", "any"])),
    )


FORMATS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "response_format": lambda schema: {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    "text": lambda schema: {"format": {"type": "json_schema", "name": "x", "schema": schema}},
    "output_config": lambda schema: {"format": {"type": "json_schema", "schema": schema}},
}
"""Functions that make each protocol's field for a JSON Schema."""


def _form(field: str, schema: Any) -> dict[str, Any]:
    return {field: FORMATS[field](schema) if field in FORMATS else schema}


def _combined_schemas() -> Json:
    made = _made(SCHEMAS)
    return st.one_of(
        made,
        made.map(lambda schema: {"type": "array", "items": schema, "maxItems": 3}),
        st.tuples(made, made).map(lambda pair: {"allOf": list(pair)}),
        st.tuples(made, made).map(lambda pair: {"anyOf": list(pair)}),
        st.tuples(made, made).map(lambda pair: {"properties": {"a": pair[0], "b": pair[1]}}),
        st.sampled_from([True, False, {}, [], 0, "string", None, {"type": "nothing"}, {"$ref": "#/nowhere"}]),
    )


def _tools(schema: Any, count: int, choice: str) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": schema}} for i in range(count)
    ]
    return {"tools": tools, "tool_choice": choice}


def _flat_tools(schema: Any, count: int, choice: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": f"tool_{i}", "parameters": schema} for i in range(count)]
    return {"tools": [*tools, {"type": "web_search"}], "tool_choice": choice}


def _functions(schema: Any, count: int, choice: Any) -> dict[str, Any]:
    functions = [{"name": f"tool_{i}", "parameters": schema} for i in range(count)]
    return {"functions": functions, "function_call": choice}


def _custom_tool(syntax: str, definition: Any) -> dict[str, Any]:
    grammar = {"syntax": syntax, "definition": definition}
    chat = {"name": "write", "format": {"type": "grammar", "grammar": grammar}}
    flat = {"name": "write", "format": {"type": "grammar", **grammar}}
    return {"tools": [{"type": "custom", "custom": chat, **flat}], "tool_choice": "required"}


def _anthropic_tools(schema: Any, count: int, choice: str) -> dict[str, Any]:
    tools = [{"name": f"tool_{i}", "input_schema": schema, "strict": i % 2 == 0} for i in range(count)]
    return {"tools": tools, "tool_choice": {"type": choice}}


def _huge_fields() -> st.SearchStrategy[dict[str, Any]]:
    items: Json = st.sampled_from(
        [
            1,
            "",
            None,
            [],
            {},
            {"role": "user"},
            {"role": "user", "content": "a"},
            {"type": "function", "function": {"name": "a"}},
            {"type": "text", "text": "a"},
            {"name": "a", "input_schema": {}, "defer_loading": True},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "a", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {}}}]},
            {"type": "function_call", "call_id": "a", "name": "a", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "a"},
            {"type": "reasoning", "summary": []},
            Literal("1e5"),
        ]
    )
    names = (
        *("messages", "tools", "stop", "prompt", "logit_bias", "stop_token_ids", "metadata", "user"),
        *("system", "stop_sequences", "input", "instructions", "functions", "tokens", "content", "options"),
        *("suffix", "format", "include", "model", "items", "conversation", "previous_response_id"),
    )
    fields = st.sampled_from(names)
    values = st.one_of(
        st.builds(Repeated, items, LENGTHS),
        st.builds(Members, items, LENGTHS),
        st.builds(Text, st.sampled_from(["a", " ", "é", "🦊", "\n", "<|im_start|>", "\\"]), LENGTHS),
        st.builds(Nested, st.sampled_from(["[", '{"a":']), LENGTHS),
        items.map(lambda item: [{"role": "user", "content": Repeated(item, 100_000)}]),
        LENGTHS.map(lambda length: [{"role": "user", "content": Text("word ", length // 5)}]),
        LENGTHS.map(lambda length: [{"role": "user", "content": Text("a", length)}]),
        st.builds(Literal, st.sampled_from(["1" * 5_000, "1e999", "NaN", "-", "[1,2", '{"a":1,"a":2}'])),
        st.builds(Literal, st.sampled_from(['"\\ud800"', '"\x00"', "--5", "0x10", "tru"])),
    )
    return st.builds(lambda field, value: {field: value}, fields, values)


def _parameters() -> st.SearchStrategy[dict[str, Any]]:
    odd: Json = st.sampled_from([0, 1, -1, 0.5, 2**31, 2**63, 1e308, -1e308, True, None, "1", [], {}])
    return st.fixed_dictionaries(
        {},
        optional={
            "n": st.one_of(st.sampled_from([1, 2, 16]), odd),
            "temperature": odd,
            "top_p": odd,
            "top_k": odd,
            "min_p": odd,
            "seed": odd,
            "logprobs": odd,
            "top_logprobs": odd,
            "repetition_penalty": odd,
            "frequency_penalty": odd,
            "max_completion_tokens": odd,
            "stop": st.sampled_from(["a", ["a", "b"], [""], Text("a", 10_000), 1]),
            "logit_bias": st.sampled_from([{"5": 100}, {"5": -100}, {"-1": 1}, {"x": 1}, {"99999999": 1}]),
            "enable_thinking": odd,
            "think": odd,
            "best_of": odd,
            "store": odd,
            "background": odd,
            "previous_response_id": odd,
            "conversation": odd,
            "echo": odd,
            "truncation": st.sampled_from(["auto", "disabled", 1]),
            "reasoning": st.sampled_from([{"effort": "high"}, {"summary": "auto"}, {"effort": 1}, []]),
            "options": st.dictionaries(st.sampled_from(OPTIONS), odd, max_size=3),
            "thinking": st.sampled_from(
                [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1_024}, {"type": 1}, []]
            ),
            "chat_template_kwargs": st.sampled_from([{}, {"messages": []}, {"tools": 1}, Members(1, 1_000)]),
        },
    )


def _call(base: tuple[str, dict[str, Any]], parts: list[dict[str, Any]], copies: int) -> Call:
    path, body = base
    merged = dict(body)
    for part in parts:
        merged |= part
    return Call(path, merged, copies)


def _raw_bodies() -> st.SearchStrategy[Call]:
    huge = [Bytes(b"[", 1_000_000), Bytes(b"1,", 1_000_000), Bytes(b'{"a":', 500_000), Bytes(b" ", 3_000_000)]
    odd = [b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b'{"model":"\xff"}', b"nul", b'"' * 99]
    other = [Bytes(b"\x1f\x8b" + b"\x00" * 1_000), Bytes(b"--x\r\n\r\n", 100_000), *map(Bytes, odd)]
    data = st.one_of(st.builds(Bytes, st.binary(max_size=40)), st.sampled_from(huge), st.sampled_from(other))
    headers = st.sampled_from(
        [
            (),
            (("content-type", "text/plain"),),
            (("content-type", "application/json; charset=utf-16"),),
            (("content-type", "multipart/form-data; boundary=x"),),
            (("content-encoding", "gzip"),),
            (("origin", "http://evil.example"),),
            (("host", "evil.example"),),
            (("host", "[127.0.0.1]evil.example"),),
            (("host", "a" * 300),),
        ]
    )
    return st.builds(
        lambda path, body, more: Call(path, body, headers=more),
        st.sampled_from([*PATHS, "/v1/models", "/nowhere"]),
        data,
        headers,
    )


def bodies(path: str, models: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Return bodies of requests to one endpoint, each with a few hostile values."""
    limits = st.sampled_from([8, 64, 200])
    valid = st.builds(
        lambda model, limit: {"model": model, **BODIES[path]("Go on", limit, True)},
        st.sampled_from(models),
        limits,
    )
    parts = st.lists(_parts(), min_size=1, max_size=2)
    return st.builds(lambda body, parts: _call((path, body), parts, 1).body, valid, parts)


def _parts() -> st.SearchStrategy[dict[str, Any]]:
    return weighted((3, _structured_outputs()), (2, _huge_fields()), (2, _parameters()))


def calls(models: tuple[str, ...]) -> st.SearchStrategy[Call]:
    """Return requests to these models, mostly well-formed ones."""
    parts = st.lists(_parts(), min_size=1, max_size=2)
    copies = st.sampled_from([1, 1, 4, 16, 40])
    known = st.builds(_call, bases(models), parts, copies)
    return weighted((6, known), (1, _raw_bodies()))


def weighted(*choices: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """Return a strategy that draws from each strategy according to its weight."""
    drawn = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.integers(0, len(drawn) - 1).flatmap(lambda index: drawn[index])
