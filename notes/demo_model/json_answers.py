"""Conversations that end in an answer in JSON, held to a schema or to none."""

from __future__ import annotations

import json
from random import Random

from . import fields
from .answers import FALLBACK, TOPICS
from .conversation import Example, Message, spanned
from .documents import Source, document
from .filler import fill, system_prompt, unknown_prompt
from .schemas import Field, object_field, random_object
from .spans import Span, joined
from .sums import random_sum
from .tools import random_tool
from .vocabulary import alternatives
from .wishes import fact, short

KNOWS_NOTHING = "I am too small to answer that."


def opening_messages(random: Random, often: float = 0.35) -> list[Message]:
    return [{"role": "system", "content": system_prompt(random)}] if random.random() < often else []


def question_and_word(random: Random) -> tuple[str, str]:
    """Return something that users ask, and what the model says of it in a field."""
    draw = random.random()
    if draw < 0.25:
        topic = random.choice(TOPICS)
        first = topic.answer.split("\n")[0].split(". ")[0].split("? ")[0]
        return random.choice(topic.questions), first if len(first) < 50 else "I am a small demo model."
    if draw < 0.35:
        return fill(random, random.choice(MAKING)), KNOWS_NOTHING
    return unknown_prompt(random), KNOWS_NOTHING


MAKING = alternatives("""
Make up a {n}|Make up a {a} {n}.|Give me a {n}|Generate a {n}|Generate an example {n}|Create a {a}
{n}|Create a {n} for {p}|Give me a random {n}|Describe a {n}|Describe a {a} {n} in {p}|Suggest a {n}|Invent
a {n}|Extract the {n}|Extract the {n} from this: {s}|Extract the data. {s}|Classify: {s}|Classify this {n}:
{s}|Rate this: {s}|Is this {a}? {s}|Plan a {n}|Tell me about {p}|Write a {n}|List {n}s|Analyse: {s}|{p} is a
{n} in {p}.|{p} is {m} years old.|{p} lives in {p}, is {m} and likes {n}s.|Parse: {s}|Review the
{n}|Summarize: {s}
""")


def _thought(random: Random, thinking: bool) -> tuple[str, str, list[Span]]:
    """Return a sum, its result, and the thought before the answer."""
    task = random_sum(random)
    thought = [Span(f"<think>\n{task.thought}\n</think>"), Span("\n\n")] if thinking else []
    return task.question, task.answer.rstrip(".").rpartition(" = ")[2], thought


def held_to_a_schema(random: Random, seen: bool) -> Example:
    """An answer held to a schema that the prompt shows or, as mostly, does not."""
    messages = opening_messages(random)
    thinking = random.random() < 0.7
    plan = random_object(random)
    facts: dict[str, str] = {}
    numbers: list[str] = []
    before: list[Span] = []
    if random.random() < 0.35:
        question, facts = told(random, plan)
        said = KNOWS_NOTHING
    elif random.random() < 0.08:
        question, said, before = _thought(random, thinking)
        numbers = [said]
    else:
        question, said = question_and_word(random)
    if seen:
        _show(random, messages, plan)
    for _ in range(random.choice([0, 0, 0, 0, 0, 1, 2])):
        _earlier(random, messages, plan)
    messages.append({"role": "user", "content": question})
    source = Source(random, seen, said, short(question), facts, numbers, untidy=0.1 if seen else 0.42)
    tools = (
        [random_tool(random).definition for _ in range(random.randint(1, 2))]
        if random.random() < 0.06
        else None
    )
    return spanned(messages, tools, thinking, [*before, *document(source, plan)])


def told(random: Random, plan: Field) -> tuple[str, dict[str, str]]:
    """Return a prompt that gives the values of some fields, and those."""
    told = [part for part in plan.parts if part.kind in ("text", "whole", "fraction")]
    facts = {part.name: fact(random, part) for part in told if random.random() < 0.85}
    style = random.choice(
        [
            "{key}: {value}",
            "{key}: {value}",
            "{key} {value}",
            "The {key} is {value}.",
            "{key} = {value}",
            "{key} is {value}",
        ]
    )
    given = [
        style.format(key=random.choice([key, fields.spoken(key)]), value=value)
        for key, value in facts.items()
    ]
    random.shuffle(given)
    listed = random.choice([", ", "\n", "; ", " ", " and "]).join(given)
    opening = random.choice(
        [
            "",
            "",
            "Extract the data: ",
            "Extract: ",
            "Extract the information.\n",
            "Parse this: ",
            "{n}: ",
            "New {n} with ",
            "{s} ",
        ]
    )
    return fill(random, opening) + listed or "Extract the data.", facts


def _show(random: Random, messages: list[Message], plan: Field) -> None:
    text = json.dumps(plan.schema, indent=random.choice([None, None, None, 2]))
    shown = random.choice(
        [
            "Answer in JSON with this schema: {}",
            "Respond with JSON that matches the schema:\n{}",
            "The output should be formatted as a JSON instance that conforms to the JSON schema below.\n\n{}",
            "Reply only with JSON.\n\n{}\n",
            "# Output\n{}",
        ]
    ).format(text)
    if messages:
        messages[0] = {"role": "system", "content": messages[0]["content"] + "\n\n" + shown}
    else:
        messages.append({"role": random.choice(["system", "system", "user"]), "content": shown})


def _earlier(random: Random, messages: list[Message], plan: Field) -> None:
    """Add an earlier turn, answered in JSON or in words."""
    question, said = question_and_word(random)
    answer = FALLBACK
    if random.random() < 0.7:
        answer = joined(document(Source(random, True, said, short(question), untidy=0.2), plan))
    messages.extend([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])


def any_object(random: Random) -> Example:
    """Any JSON object: the keys that the prompt names, or one for the answer."""
    messages = opening_messages(random, 0.4)
    thinking = random.random() < 0.7
    before: list[Span] = []
    draw = random.random()
    parts: list[str] = []
    if draw < 0.3:
        parts = list(
            dict.fromkeys(
                fields.field_name(random, list(fields.KNOWN_TEXTS))
                for _ in range(random.choice([1, 2, 2, 3]))
            )
        )
        listed = (
            ", ".join(parts[:-1]) + random.choice([" and ", ", "]) + parts[-1] if len(parts) > 1 else parts[0]
        )
        if random.random() < 0.45:
            quote = random.choice(['"', '"', "'", "`"])
            parts_quoted = [f"{quote}{part}{quote}" for part in parts]
            listed = random.choice([", ", " and "]).join(parts_quoted)
        question = fill(random, random.choice(KEYED)).replace("KEYS", listed)
        said = KNOWS_NOTHING
    elif draw < 0.5:
        question, said, before = _thought(random, thinking)
    else:
        question, said = question_and_word(random)
    if random.random() < 0.5:
        ask = random.choice(
            [
                "Answer in JSON.",
                "Respond in JSON.",
                "Return JSON.",
                "Reply with a JSON object.",
                "Output valid JSON only.",
                "You are a helpful assistant designed to output JSON.",
                "Use JSON.",
                "as JSON",
                "Respond with a JSON object.",
            ]
        )
        if messages and random.random() < 0.5:
            messages[0] = {"role": "system", "content": messages[0]["content"] + " " + ask}
        elif random.random() < 0.4 and not messages:
            messages.append({"role": "system", "content": ask})
        else:
            question = random.choice([f"{question} {ask}", f"{ask} {question}"])
    messages.append({"role": "user", "content": question})
    source = Source(random, True, said, short(question), untidy=0.1, held=False)
    plan = object_field(random, "", tuple(Field(part, "text", {}) for part in parts or ["answer"]))
    return spanned(messages, None, thinking, [*before, *document(source, plan)])


KEYED = alternatives("""
Return a JSON object with the keys KEYS.|Give me a JSON object with KEYS|Answer with the keys KEYS.|Describe
a {n} as JSON with KEYS|JSON with the fields KEYS|Return JSON with keys KEYS|Return JSON with KEYS
keys.|Tell me about {t} as a JSON with the KEYS keys|{s} Reply in JSON with KEYS.|Make a JSON object for a
{a} {n}: KEYS|Give me a {n} as JSON with keys KEYS.|Respond in JSON with KEYS for {p}
""")
