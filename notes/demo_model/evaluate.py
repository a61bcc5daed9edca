"""Puts schemas and tools to the built-in model, by the helpers of the official clients.

At the root, beside a server that runs: `python -m notes.demo_model.evaluate http://127.0.0.1:8000`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import attrs
import openai
import pydantic

MOST_TOKENS = 200
"""Limits of an answer, with the reasoning before it."""

Messages = list[dict[str, str]]


@attrs.frozen
class Case:
    """A schema that an answer is to have, or a tool that is to be called.

    Args:
        prompt: What the user says.
        shape: Schema of the answer, or of the tool's arguments.
        tool: Name of the tool, if it is one.
        system: System prompt, if there is one.
    """

    prompt: str
    shape: type[pydantic.BaseModel]
    tool: str | None = None
    system: str | None = None


@attrs.frozen
class Outcome:
    """Outcome of a test case.

    Args:
        way: The helper that asked.
        text: The answer, or the arguments of the call.
        tokens: Tokens of the answer.
        problem: Why it does not count; empty if it does.
    """

    way: str
    text: str
    tokens: int
    problem: str


Answer = tuple[str, int, bool]
"""Text, tokens, and whether it ended by itself."""
Way = Callable[[str, Case], Answer]


def judged(url: str, case: Case, way: Way) -> Outcome:
    """Put one case to a server and look at the answer."""
    try:
        text, tokens, ended = way(url, case)
    except (openai.LengthFinishReasonError, pydantic.ValidationError) as error:
        return Outcome(way.__name__, str(error)[:300], MOST_TOKENS, "did not end")
    problem = "" if ended and tokens <= MOST_TOKENS else f"did not end in {MOST_TOKENS} tokens"
    try:
        case.shape.model_validate_json(text)
        if not case.shape.model_fields and json.loads(text) != {}:
            problem = "arguments for a tool that takes none"
    except pydantic.ValidationError as error:
        problem = problem or f"invalid: {error.errors()[0]['msg']}"
    return Outcome(way.__name__, text, tokens, problem)


def chat_parse(url: str, case: Case) -> Answer:
    """Ask for a schema: `chat.completions.parse`."""
    with _openai(url) as client:
        done = client.chat.completions.parse(
            model="default", messages=_messages(case), max_tokens=MOST_TOKENS, response_format=case.shape
        )
    return _of_chat(done)


def chat_stream(url: str, case: Case) -> Answer:
    """Ask for a schema: `chat.completions.stream`."""
    fields: dict[str, Any] = {"max_tokens": MOST_TOKENS, "stream_options": {"include_usage": True}}
    with (
        _openai(url) as client,
        client.chat.completions.stream(
            model="default", messages=_messages(case), response_format=case.shape, **fields
        ) as stream,
    ):
        return _of_chat(stream.get_final_completion())


def responses_parse(url: str, case: Case) -> Answer:
    """Ask for a schema: `responses.parse`."""
    with _openai(url) as client:
        done = client.responses.parse(
            model="default",
            input=case.prompt,
            instructions=case.system,
            max_output_tokens=MOST_TOKENS,
            text_format=case.shape,
            store=False,
        )
    assert done.usage
    return done.output_text, done.usage.output_tokens, done.status == "completed"


def messages_parse(url: str, case: Case) -> Answer:
    """Ask for a schema: Anthropic's `messages.parse`."""
    with _anthropic(url) as client:
        done = client.messages.parse(**_message_fields(case), output_format=case.shape)
    text = "".join(block.text for block in done.content if block.type == "text")
    return text, done.usage.output_tokens, done.stop_reason == "end_turn"


def chat_named_tool(url: str, case: Case) -> Answer:
    """Force a strict tool by name: `pydantic_function_tool` and `chat.completions.parse`."""
    tool = openai.pydantic_function_tool(case.shape, name=case.tool, description=_described(case))
    with _openai(url) as client:
        done = client.chat.completions.parse(
            model="default",
            messages=_messages(case),
            max_tokens=MOST_TOKENS,
            tools=[tool],
            tool_choice={"type": "function", "function": {"name": str(case.tool)}},
        )
    return _of_chat(done)


def chat_required_tool(url: str, case: Case) -> Answer:
    """Require a call of a tool that is not strict."""
    function: Any = {
        "name": case.tool,
        "description": _described(case),
        "parameters": case.shape.model_json_schema(),
    }
    with _openai(url) as client:
        done = client.chat.completions.create(
            model="default",
            messages=_messages(case),
            max_tokens=MOST_TOKENS,
            tools=[{"type": "function", "function": function}],
            tool_choice="required",
        )
    return _of_chat(done)


def messages_tool(url: str, case: Case) -> Answer:
    """Force a tool of Anthropic's protocol, by name or as the only one."""
    tool = {
        "name": case.tool,
        "description": _described(case),
        "input_schema": case.shape.model_json_schema(),
    }
    choice = {"type": "tool", "name": case.tool} if len(case.prompt) % 2 else {"type": "any"}
    with _anthropic(url) as client:
        done = client.messages.create(**_message_fields(case), tools=[tool], tool_choice=choice)
    calls = [block.input for block in done.content if block.type == "tool_use"]
    return json.dumps(calls[0]) if calls else "", done.usage.output_tokens, done.stop_reason == "tool_use"


WAYS_OF_SCHEMAS: tuple[Way, ...] = (chat_parse, messages_parse, chat_stream, responses_parse)
WAYS_OF_TOOLS: tuple[Way, ...] = (chat_named_tool, messages_tool, chat_required_tool)


def evaluate(url: str, cases: Iterable[Case]) -> list[tuple[Case, Outcome]]:
    """Put every case to the server, each by one of the ways in turn."""
    numbered = list(enumerate(cases))

    def put(one: tuple[int, Case]) -> tuple[Case, Outcome]:
        number, case = one
        ways = WAYS_OF_TOOLS if case.tool else WAYS_OF_SCHEMAS
        return case, judged(url, case, ways[number % len(ways)])

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(put, numbered))


def _openai(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _anthropic(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, auth_token="none", max_retries=0)


def _messages(case: Case) -> Any:
    instructed: Messages = [{"role": "system", "content": case.system}] if case.system else []
    return [*instructed, {"role": "user", "content": case.prompt}]


def _message_fields(case: Case) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": "default", "max_tokens": MOST_TOKENS}
    if case.system:
        fields["system"] = case.system
    return {**fields, "messages": [{"role": "user", "content": case.prompt}]}


def _described(case: Case) -> str:
    return (case.shape.__doc__ or "").strip()


def _of_chat(done: Any) -> Answer:
    choice = done.choices[0]
    calls = choice.message.tool_calls
    text = calls[0].function.arguments if calls else choice.message.content
    return text or "", done.usage.completion_tokens, choice.finish_reason in ("stop", "tool_calls")


def main() -> None:
    """Print what fails, and how many end by themselves and validate."""
    from .unseen import UNSEEN

    parser = argparse.ArgumentParser(description="Put unseen schemas and tools to the built-in model.")
    parser.add_argument("url", help="the server, as in http://127.0.0.1:8000")
    arguments = parser.parse_args()
    outcomes = evaluate(arguments.url, UNSEEN)
    for case, outcome in outcomes:
        print("    " if not outcome.problem else "BAD ", outcome.way, outcome.tokens, outcome.problem)
        print("        ", case.tool or case.shape.__name__, repr(case.prompt), outcome.text)
    right = sum(not outcome.problem for _, outcome in outcomes)
    mean = sum(outcome.tokens for _, outcome in outcomes) / len(outcomes)
    print(f"{right} of {len(outcomes)} ended by themselves and validate; {mean:.0f} tokens on average")


if __name__ == "__main__":
    main()
