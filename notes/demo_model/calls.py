"""Conversations that end in calls of tools, or in what their results make possible."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from . import fields
from .answers import FALLBACK, TOPICS
from .conversation import Example, called_message, result_message, spanned
from .documents import Source, document, write
from .filler import fill, sentence, unknown_prompt
from .json_answers import opening_messages, question_and_word, told
from .schemas import random_object
from .spans import Against, Span
from .tools import FINAL_NAMES, Tool, random_tool
from .vocabulary import name, word
from .weather import weather_tool
from .wishes import Wish, fact, forced, short, wish


def call_spans(wanted: Wish, opening: bool) -> list[Span]:
    """Return a call as the template writes it; `opening` if a client forces it."""
    return [
        Span('<tool_call>\n{"name": "', against=Against.OPENINGS if opening else Against.ALL),
        Span(wanted.tool.name),
        Span('"'),
        Span(', "'),
        Span("arguments"),
        Span('": '),
        *write(wanted.source, wanted.tool.arguments),
        Span("}"),
        Span("\n</tool_call>"),
    ]


def arguments_of(spans: list[Span]) -> dict[str, Any]:
    """Return the call that spans write."""
    text = "".join(span.text for span in spans)
    called: dict[str, Any] = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
    return called


def tool_result(random: Random) -> str:
    """Return a random result of a tool."""
    draw = random.random()
    if draw < 0.3:
        return str(random.randint(-99, 9999)) + random.choice(["", "", f".{random.randint(0, 99)}"])
    if draw < 0.5:
        return " ".join(random.choice([word, name])(random) for _ in range(random.randint(1, 4)))
    if draw < 0.65:
        return sentence(random)
    if draw < 0.75:
        return fill(
            random,
            random.choice(
                [
                    "{n} not found",
                    "Error: {a} {n}",
                    "ok",
                    "done",
                    "true",
                    "null",
                    "{s} {s}",
                    "The {n} is {a}.",
                ]
            ),
        )
    facts = {
        fields.field_name(random, list(fields.KNOWN_TEXTS)): random.choice(
            [word(random), random.randint(0, 999), True]
        )
        for _ in range(random.randint(1, 3))
    }
    return json.dumps(facts)


def _offer(random: Random, *wanted: Tool) -> list[dict[str, Any]]:
    others = [random_tool(random, 3).definition for _ in range(random.choice([0, 0, 0, 1, 1, 2, 3]))]
    offered = [*others, *(tool.definition for tool in wanted)]
    random.shuffle(offered)
    return offered


def no_call(random: Random) -> Example:
    """A question that no tool on offer answers."""
    question, answer = unknown_prompt(random), FALLBACK
    if random.random() < 0.2:
        topic = random.choice(TOPICS)
        question, answer = random.choice(topic.questions), topic.answer
    tools = [random_tool(random).definition for _ in range(random.choice([0, 0, 1, 1, 2]))]
    if not tools or random.random() < 0.5:
        tools.insert(random.randint(0, len(tools)), weather_tool(random).definition)
    messages = [*opening_messages(random), {"role": "user", "content": question}]
    return spanned(messages, tools, random.random() < 0.7, [Span(answer)])


def forced_call(random: Random) -> Example:
    """A call that the question does not ask for: the only tool, or the one that takes the final answer."""
    tool = random_tool(random, final=random.random() < 0.35)
    question, facts = (
        told(random, tool.arguments) if random.random() < 0.3 else (question_and_word(random)[0], {})
    )
    wanted = forced(random, tool, question)
    wanted.source.facts.update(facts)
    messages = [*opening_messages(random), {"role": "user", "content": question}]
    final = tool.name in FINAL_NAMES
    tools = _offer(random, tool) if final else [tool.definition]
    return spanned(messages, tools, random.random() < 0.7, call_spans(wanted, opening=True))


def wished_call(random: Random) -> Example:
    """A call or two that the question asks for."""
    first = wish(random)
    messages = opening_messages(random)
    wishes = [first]
    question = first.question
    if random.random() < 0.22:
        second = wish(random)
        if second.tool.name != first.tool.name:
            wishes.append(second)
            question = random.choice(["{} and {}", "{}, and {}", "{}. Then {}", "{} {}", "{}; {}"]).format(
                first.question, second.question
            )
    elif random.random() < 0.12:
        question, wishes = _twice(random, first)
    spans: list[Span] = []
    for n, wanted in enumerate(wishes):
        spans.extend([Span("\n")] if n else [])
        spans.extend(call_spans(wanted, opening=False))
    for _ in range(random.choice([0, 0, 0, 0, 1])):
        messages.extend(
            [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": TOPICS[0].answer}]
        )
    messages.append({"role": "user", "content": question})
    tools = _offer(random, *{wanted.tool.name: wanted.tool for wanted in wishes}.values())
    return spanned(messages, tools, random.random() < 0.7, spans)


def _twice(random: Random, first: Wish) -> tuple[str, list[Wish]]:
    """The same tool for two values."""
    text = [part for part in first.tool.arguments.parts if part.kind == "text"]
    if len(first.tool.arguments.parts) != 1 or not text:
        return first.question, [first]
    key = text[0].name
    values = fact(random, text[0]), fact(random, text[0])
    question = f"{fields.spoken(first.tool.name)} for {values[0]} and {values[1]}"
    return question, [
        Wish(first.tool, question, Source(random, True, value, value, {key: value}, untidy=0.0, held=False))
        for value in values
    ]


def after_results(random: Random) -> Example:
    """The model's answer to the results of its calls, or its call of the tool for the final answer."""
    wanted = wish(random)
    count = random.choice([1, 1, 1, 2, 2, 3])
    made = [
        arguments_of(call_spans(one, opening=False))
        for one in [wanted, *(wish(random) for _ in range(count - 1))]
    ]
    results = [tool_result(random) for _ in made]
    messages = [
        *opening_messages(random),
        {"role": "user", "content": wanted.question},
        called_message(*made),
    ]
    messages.extend(result_message(text) for text in results)
    tools = _offer(random, wanted.tool)
    thinking = random.random() < 0.7
    draw = random.random()
    if draw < 0.25:
        final = random_tool(random, 3, final=True)
        offered = [*tools, final.definition]
        return spanned(
            messages, offered, thinking, call_spans(forced(random, final, wanted.question), opening=True)
        )
    if draw < 0.35:
        source = Source(random, False, results[0][:40], short(wanted.question), untidy=0.3)
        return spanned(messages, tools, thinking, document(source, random_object(random)))
    answer = "\n".join(f"The tool says: {text}" for text in results)
    return spanned(messages, tools if random.random() < 0.85 else None, thinking, [Span(answer)])
