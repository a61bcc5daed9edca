"""SmolLM2 over HTTP: the answers of llama.cpp with the same numbers, and values that make sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter, sub
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from tokenizers import Tokenizer

from greenroom.tests.real.conftest import HOME, Ask, Record

NEEDS = ("smollm2",)
RECORDED = json.loads(Path(__file__).with_name("smollm2.json").read_text(encoding="utf-8"))
END = 2
SAME = "smollm2-gguf"
"""The model with the codes of the file that llama.cpp read."""
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "city": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
    },
    "required": ["name", "city", "age"],
    "additionalProperties": False,
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


def chat(question: str, **fields: Any) -> Callable[[openai.OpenAI], ChatCompletion]:
    """Return a call that asks greedily."""
    messages = fields.pop("messages", [{"role": "user", "content": question}])
    greedy = {"model": SAME, "messages": messages, "temperature": 0, **fields}
    return lambda client: client.chat.completions.create(**greedy)


@pytest.fixture(scope="module")
def answers(client: openai.OpenAI) -> dict[str, ChatCompletion]:
    """The answers to recorded questions, forty tokens each."""

    def ask(item: dict[str, Any]) -> ChatCompletion:
        return chat(item["question"], max_tokens=40, logprobs=True)(client)

    with ThreadPoolExecutor(len(RECORDED)) as threads:
        # The first one alone, so that all others find the system prompt in the cache.
        found = [ask(RECORDED[0]), *threads.map(ask, RECORDED[1:])]
    return {item["question"]: answer for item, answer in zip(RECORDED, found, strict=True)}


def logprobs_of(answer: ChatCompletion) -> list[float]:
    """Return the log-probability of each token."""
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    return [token.logprob for token in logprobs.content]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["question"][:24])
def test_answers_are_those_of_llama_cpp(
    recorded: dict[str, Any],
    answers: dict[str, ChatCompletion],
    client: openai.OpenAI,
    record_property: Record,
) -> None:
    tokenized = client.post(
        str(client.base_url.copy_with(path="/tokenize")),
        cast_to=object,
        body={"model": SAME, "messages": [{"role": "user", "content": recorded["question"]}]},
    )
    assert isinstance(tokenized, dict)
    assert tokenized["tokens"] == recorded["prompt"]
    answer = answers[recorded["question"]]
    expected = [token for token in recorded["answer"] if token[0] != END]
    tokenizer = Tokenizer.from_file(str(HOME / SAME / "tokenizer.json"))
    text = answer.choices[0].message.content
    assert text is not None
    # The fortieth token may end within a character.
    assert text.rstrip("\ufffd") == tokenizer.decode([token for token, _ in expected]).rstrip("\ufffd")
    found, wanted = logprobs_of(answer), [logprob for _, logprob in expected]
    record_property("largest difference", f"{max(map(abs, map(sub, found, wanted))):.4f}")
    assert found == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("bits", [8, 4])
def test_converted_models_find_the_same_answer_about_as_likely(
    bits: int, client: openai.OpenAI, record_property: Record
) -> None:
    recorded = RECORDED[0]
    tokens = recorded["prompt"] + [token for token, _ in recorded["answer"]]
    answer = client.completions.create(
        model=f"smollm2-{bits}bit", prompt=tokens, echo=True, logprobs=0, max_tokens=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    expected = [logprob for _, logprob in recorded["answer"]][:-1]
    found = [logprob or 0.0 for logprob in logprobs.token_logprobs[-len(expected) - 1 : -1]]
    record_property("largest difference", f"{max(map(abs, map(sub, found, expected))):.2f}")
    assert found == pytest.approx(expected, abs=0.4)


def test_eight_different_requests_together_equal_each_alone(client: openai.OpenAI, together: Ask) -> None:
    long = " ".join(f"Item {number} costs {7 * number} dollars." for number in range(6))
    calls = [
        chat("Name a colour.", max_tokens=10),
        chat("Write a short poem.", max_tokens=10, temperature=0.8, seed=1),
        chat("Write a short poem.", max_tokens=10, temperature=1.2, seed=2, top_p=0.9),
        chat("Ann is 36 and lives in Oslo.", max_tokens=32, response_format=strict("person", PERSON)),
        chat("Repeat: la la la la", max_tokens=10, frequency_penalty=1.0, presence_penalty=0.5),
        chat(f"{long} What does item 3 cost?", max_tokens=16),
        chat("Count from 1 to 20.", max_tokens=16, stop=["5"]),
        chat("Say hello in Spanish. 🎉", max_tokens=10, logprobs=True, top_logprobs=2),
    ]
    both = [together(calls), [call(client) for call in calls]]
    texts, reasons = (
        [[pick(answer.choices[0]) for answer in answers] for answers in both]
        for pick in (attrgetter("message.content"), attrgetter("finish_reason"))
    )
    assert texts[0] == texts[1]
    assert reasons[0] == reasons[1]


def test_a_second_turn_finds_the_first_in_the_cache(client: openai.OpenAI, record_property: Record) -> None:
    history: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
    first = chat("", messages=history, max_tokens=40)(client)
    assert first.choices[0].message.content is not None
    assert "Paris" in first.choices[0].message.content
    assert first.choices[0].finish_reason == "stop"
    history += [{"role": "assistant", "content": first.choices[0].message.content}]
    history += [{"role": "user", "content": "And of Italy?"}]
    second = chat("", messages=history, max_tokens=1)(client)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None
    record_property("cached tokens", f"{cached} of {second.usage.prompt_tokens}")
    assert cached >= first.usage.prompt_tokens


def test_values_of_a_schema_are_those_of_the_text(client: openai.OpenAI) -> None:
    text = "Extract name, city and age as JSON: Maria Lopez is 36 years old and lives in Lisbon."
    answer = chat(text, max_tokens=80, response_format=strict("person", PERSON))(client)
    assert answer.choices[0].message.content is not None
    found = json.loads(answer.choices[0].message.content)
    assert "Maria" in found["name"]
    assert "Lisbon" in found["city"]


def test_a_named_call_has_the_arguments_of_the_question(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "add"}}
    answer = chat("What is 17 plus 25?", max_tokens=80, tools=[ADD], tool_choice=named)(client)
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"a": 17, "b": 25}


def strict(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a response format."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}
