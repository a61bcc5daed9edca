"""The demo model's documented prompts over HTTP, sent by OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
import trio

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.notes.demo_model.prompts import PROMPTS, DemoPrompt
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.parsers.model_outputs import extract_calls, extract_reasoning
from greenroom.tests.support.servers.http_servers import serving

AnswerParts = tuple[str, str, list[tuple[str, Any]]]
"""Reasoning, text and tool calls of an answer."""


def expected(prompt: DemoPrompt) -> AnswerParts:
    """Return the parts of the documented raw text that a client should receive."""
    whole = extract_reasoning(make_reasoning_parser("think_tag"), prompt.expected)
    answer = extract_calls(make_tool_parser("hermes_json"), whole.text)
    calls = [(call.name, json.loads(call.arguments)) for call in answer.calls]
    return whole.reasoning or "", answer.text, calls


def on_the_wire(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in OpenAI's protocol, with arguments as JSON text."""
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def request_of(prompt: DemoPrompt) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "default", "messages": [on_the_wire(m) for m in prompt.messages]}
    if prompt.tools:
        body["tools"] = list(prompt.tools)
    return {**body, "extra_body": {"chat_template_kwargs": {"enable_thinking": prompt.thinking}}}


def plain(client: openai.OpenAI, prompt: DemoPrompt) -> AnswerParts:
    choice = client.chat.completions.create(**request_of(prompt)).choices[0]
    message = choice.message
    calls = [
        (call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or ()
        if call.type == "function"
    ]
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    return getattr(message, "reasoning_content", None) or "", message.content or "", calls


def streamed(client: openai.OpenAI, prompt: DemoPrompt) -> AnswerParts:
    thought = text = ""
    calls: list[list[str]] = []
    for chunk in client.chat.completions.create(stream=True, **request_of(prompt)):
        delta = chunk.choices[0].delta
        thought += getattr(delta, "reasoning_content", None) or ""
        text += delta.content or ""
        for part in delta.tool_calls or ():
            if part.index == len(calls):
                assert part.function is not None
                calls.append([part.function.name or "", ""])
            calls[part.index][1] += (part.function and part.function.arguments) or ""
    return thought, text, [(name, json.loads(arguments)) for name, arguments in calls]


def ask_all(base_url: str) -> list[tuple[DemoPrompt, AnswerParts, AnswerParts]]:
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        return [(prompt, plain(client, prompt), streamed(client, prompt)) for prompt in PROMPTS]


@pytest.mark.deep
async def test_documented_prompts_are_answered_through_the_server() -> None:
    async with serving(Settings()) as served:
        answers = await trio.to_thread.run_sync(ask_all, served.base_url)
    for prompt, whole, pieces in answers:
        assert whole == expected(prompt), prompt
        assert pieces == whole, prompt
