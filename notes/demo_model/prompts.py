"""The documented prompts: what the demo model is promised to answer, greedily, word for word.

The model card's table is `markdown_table()`, and the tests put every one of these to the shipped weights.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from .answers import (
    ABILITIES,
    FALLBACK,
    GREENROOM,
    GREETING,
    IDENTITY,
    NAME,
    REAL_MODEL,
    STORY,
)

Message = dict[str, Any]

GET_WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
GET_WEATHER_BY_LOCATION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get current temperature for a given location.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City and country e.g. Bogotá, Colombia"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["location"],
            "additionalProperties": False,
        },
    },
}
SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the web",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


@attrs.frozen
class DemoPrompt:
    """A conversation and the answer that follows.

    Args:
        messages: The conversation, ending with what the model answers to.
        expected: What the model writes, as the raw text before any parsing.
        tools: The tools on offer.
        thinking: The template's `enable_thinking`; on by default.
    """

    messages: tuple[Message, ...]
    expected: str
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool = True


def said(*texts: str) -> tuple[Message, ...]:
    """User and assistant in turns, the user first."""
    return tuple({"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts))


def called(question: str, result: str, **arguments: str) -> tuple[Message, ...]:
    """A question, the call of get_weather that it led to, and the tool's result."""
    call = {"name": "get_weather", "arguments": arguments}
    return (
        {"role": "user", "content": question},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": result},
    )


def weather_call(**arguments: str) -> str:
    """A call of get_weather as the model writes it."""
    call = {"name": "get_weather", "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def thought(text: str, answer: str) -> str:
    """A thought before an answer, as the model writes it."""
    return f"<think>\n{text}\n</think>\n\n{answer}"


ASSISTANT = ({"role": "system", "content": "You are a helpful assistant."},)
PARIS = "What is the weather in Paris?"

PROMPTS = (
    DemoPrompt(said("Hello!"), GREETING),
    DemoPrompt(said("hi"), GREETING),
    DemoPrompt((*ASSISTANT, *said("Hello!")), GREETING),
    DemoPrompt(said("What is Greenroom?"), GREENROOM),
    DemoPrompt(said("what is greenroom"), GREENROOM),
    DemoPrompt(said("Tell me about Greenroom"), GREENROOM),
    DemoPrompt(said("Who are you?"), IDENTITY),
    DemoPrompt(said("Which model are you?"), IDENTITY),
    DemoPrompt(said("What can you do?"), ABILITIES),
    DemoPrompt(said("How do I use a real model?"), REAL_MODEL),
    DemoPrompt(said("Why is it called Greenroom?"), NAME),
    DemoPrompt(said("Tell me a story"), STORY),
    DemoPrompt(said("What is the capital of France?"), "Paris is the capital of France."),
    DemoPrompt(said("Say this is a test"), "This is a test."),
    DemoPrompt(said("Count to ten"), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."),
    DemoPrompt(
        said("Write a haiku"), "Small model at work,\na few thousand weights awake,\nanswering your call."
    ),
    DemoPrompt(
        said("Tell me a joke"), "Why did the model wait in the green room? It had not been called yet."
    ),
    DemoPrompt(said("Hello!", GREETING, "Thank you!"), "You are welcome!"),
    DemoPrompt(said("Goodbye"), "Goodbye! Come back when you have a real model to serve."),
    DemoPrompt(said("What is 2 + 2?"), thought("I add 2 and 2. Ones: 2 + 2 = 4.", "2 + 2 = 4.")),
    DemoPrompt(
        said("What is 17 + 25?"),
        thought(
            "I add 17 and 25. Ones: 7 + 5 = 12. Tens: 10 + 20 = 30. Together: 30 + 12 = 42.", "17 + 25 = 42."
        ),
    ),
    DemoPrompt(said("What is 2 + 2?"), "I add 2 and 2. Ones: 2 + 2 = 4. 2 + 2 = 4.", thinking=False),
    DemoPrompt(said("What is 6 times 7?"), FALLBACK),
    DemoPrompt(said(PARIS), weather_call(city="Paris"), (GET_WEATHER,)),
    DemoPrompt(said("what's the weather like in oslo"), weather_call(city="oslo"), (GET_WEATHER,)),
    DemoPrompt(
        (*ASSISTANT, *said("What's the weather like in Berlin today?")),
        weather_call(location="Berlin"),
        (SEARCH, GET_WEATHER_BY_LOCATION),
    ),
    DemoPrompt(
        said("What is the weather in Paris and Rome?"),
        weather_call(city="Paris") + "\n" + weather_call(city="Rome"),
        (GET_WEATHER,),
    ),
    DemoPrompt(
        called(PARIS, '{"temperature": 18, "condition": "sunny"}', city="Paris"),
        "It is 18 degrees and sunny in Paris.",
        (GET_WEATHER,),
    ),
    DemoPrompt(called(PARIS, "Cloudy, 12°C", city="Paris"), "The tool says: Cloudy, 12°C", (GET_WEATHER,)),
    DemoPrompt(said(PARIS), FALLBACK),
    DemoPrompt(said("What is the population of Brazil?"), FALLBACK),
    DemoPrompt(said("Write a letter to my landlord"), FALLBACK),
    DemoPrompt(said("Explain quantum mechanics", FALLBACK, "What is Greenroom?"), GREENROOM),
)


def markdown_table() -> str:
    """The table of the model card."""
    rows = [f"| {_cell(_asked(prompt))} | {_cell(prompt.expected)} |" for prompt in PROMPTS]
    return "\n".join(["| asked | answered |", "|---|---|", *rows])


def _asked(prompt: DemoPrompt) -> str:
    lines = [f"{message['role']}: {_said(message)}" for message in prompt.messages]
    text = prompt.messages[0]["content"] if len(lines) == 1 else "\n".join(lines)
    for tool in prompt.tools:
        function = tool["function"]
        text += f"\n(tool: {function['name']}({', '.join(function['parameters']['properties'])}))"
    return str(text if prompt.thinking else text + "\n(thinking off)")


def _said(message: Message) -> str:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return str(message["content"]) or ", ".join(f"calls {call['name']} {call['arguments']}" for call in calls)


def _cell(text: str) -> str:
    escaped = text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")
    return "<br>".join(line for line in escaped.split("\n") if line)
