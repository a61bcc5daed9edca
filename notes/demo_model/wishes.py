"""Requests of users that a tool can fulfil, and the values that a call takes from their words."""

from __future__ import annotations

from random import Random

import attrs

from . import fields
from .documents import Source
from .filler import unknown_prompt
from .schemas import Field, object_field
from .tools import KNOWN_NAMES, Tool, defined, random_tool
from .vocabulary import ADJECTIVES, VERBS, alternatives, invented_word, name, word
from .weather import city


@attrs.frozen
class Wish:
    """A user's request, and the call that answers it.

    Args:
        tool: The tool to call.
        question: The user's words.
        source: Where the call's arguments come from.
    """

    tool: Tool
    question: str
    source: Source


def wish(random: Random, tool: Tool | None = None) -> Wish:
    """Return a request that names a tool, with the values that it is to take, some of them or none."""
    draw = random.random()
    if tool is None and draw < 0.2:
        return _about_numbers(random)
    if tool is None and draw < 0.4:
        return _about_a_text(random)
    tool = tool or random_tool(random)
    asked = random.choice(NAMING).format(
        name=tool.name, spoken=fields.spoken(tool.name), verb=random.choice(VERBS)
    )
    facts = {}
    told = [part for part in tool.arguments.parts if part.kind in ("text", "whole", "fraction")]
    if told and random.random() < 0.7:
        for part in told:
            facts[part.name] = fact(random, part)
        style = random.choice(
            ["{key} {value}", "{key} {value}", "{key}: {value}", "{key}={value}", "{key} = {value}"]
        )
        given = [
            style.format(key=random.choice([key, fields.spoken(key)]), value=value)
            for key, value in facts.items()
        ]
        asked = asked.rstrip(".!?") + random.choice([" with ", " with ", " for ", ": ", ". ", " ("])
        asked += random.choice([" and ", ", ", ", "]).join(given)
    return Wish(
        tool, asked, Source(random, True, fields.spoken(tool.name), asked, facts, untidy=0.05, held=False)
    )


NAMING = alternatives("""
Use the {name} tool|Use {name}|What is {name}()?|What is the value of {name}()? Use the tool.|{name}()|Use
the tool {name}|Call {name}|Call {name}.|Please call {name}|Call the function {name}|Please use the {name}
tool.|Run {name}|Try {name}|Invoke {name}|Can you call {name}?|I want you to call
{name}|{spoken}|{spoken}|{spoken}, please|Please {spoken}|Can you {spoken}?|Could you {spoken} for me?|I
want to {spoken}|Hello! Please {spoken}|Use the tools to {spoken}|Use your tools: {spoken}|Use a tool to
{spoken}|What is the {spoken}?|Test {name}|Do the {spoken} now
""")


def fact(random: Random, field: Field) -> str:
    """Return a value that a prompt may give."""
    if field.kind == "whole":
        return str(random.randint(0, random.choice([9, 99, 2030])))
    if field.kind == "fraction":
        return f"{random.randint(0, 99)}.{random.randint(0, 99)}"
    draw = random.random()
    if draw < 0.5:
        return random.choice([word, name, city, invented_word])(random)
    if draw < 0.8:
        return " ".join(random.choice([word, name])(random) for _ in range(random.randint(2, 3)))
    return fields.patterned(random)


def _about_numbers(random: Random) -> Wish:
    """A function of one, two or three numbers, which the user gives in order."""
    count = random.choice([1, 1, 2, 2, 2, 3])
    names = random.choice(
        [
            ["a", "b", "c"],
            ["x", "y", "z"],
            ["input", "second", "third"],
            ["n", "m", "k"],
            ["number", "other", "more"],
            ["first", "second", "third"],
            ["num1", "num2", "num3"],
        ]
    )[:count]
    if random.random() < 0.3:
        names = [word(random) for _ in range(count)]
    typed = random.choice(["integer", "integer", "number"])
    parts = tuple(Field(one, "whole", {"type": typed}) for one in dict.fromkeys(names))
    called = random.choice(
        [
            "add",
            "multiply",
            "subtract",
            "sum_numbers",
            "power",
            "calculate",
            word(random),
            f"{random.choice(ADJECTIVES)}_function",
            f"{word(random)}_function",
            f"{random.choice(VERBS)}_numbers",
            invented_word(random),
        ]
    )
    arguments = object_field(random, "", parts)
    tool = Tool(called, arguments, defined(random, called, arguments))
    numbers = [str(random.randint(0, random.choice([9, 99, 999]))) for _ in parts]
    listed = random.choice([" and ", ", ", " + ", " * ", " and ", " to ", " by "]).join(numbers)
    spoken = fields.spoken(called)
    asked = random.choice(
        [
            f"What is {called}({', '.join(numbers)})?",
            f"What is {spoken} of {listed}?",
            f"What is the {spoken} of {listed}?",
            f"{spoken.capitalize()} {listed}",
            f"Use the tools to {spoken} {listed}",
            f"Use the {called} tool on {listed}",
            f"Please {spoken} {listed}.",
            f"Can you {spoken} {listed}?",
            f"Call {called} with {listed}",
            f"What is the value of {called}({', '.join(numbers)})? Use the tool.",
            f"Use a tool to {spoken} {listed}.",
            f"Use the tool. What is {listed}?",
            f"{called}({', '.join(numbers)})",
            f"What is {listed}? Use {called}.",
            f"Calculate {spoken} for {listed}",
            f"Please use the tool to {spoken} {listed}",
        ]
    )
    return Wish(tool, asked, Source(random, True, "1", asked, numbers=numbers, untidy=0.0, held=False))


def _about_a_text(random: Random) -> Wish:
    """A function of one text, which ends the user's words."""
    key = fields.field_name(
        random,
        [
            "city",
            "location",
            "query",
            "name",
            "symbol",
            "zone",
            "text",
            "path",
            "topic",
            "user",
            "country",
            "title",
        ],
    )
    part = Field(key, "text", {"type": "string"})
    called = random.choice(
        [
            random.choice(KNOWN_NAMES),
            f"get_{word(random)}",
            f"{random.choice(VERBS)}_{word(random)}",
            f"{word(random)}_{word(random)}",
            f"get_{word(random)}_for_{word(random)}",
        ]
    )
    arguments = object_field(random, "", (part,))
    tool = Tool(called, arguments, defined(random, called, arguments))
    value = fact(random, part)
    spoken = fields.spoken(called)
    asked = random.choice(
        [
            f"What is the {spoken.removeprefix('get ')} in {value}?",
            f"What is the {spoken.removeprefix('get ')} of {value}?",
            f"{spoken.capitalize()} for {value}",
            f"{spoken} {value}",
            f"Please {spoken} for {value}.",
            f"Use the {called} tool for {value}",
            f"Can you {spoken} in {value}?",
            f"Use {called} with {value}",
            f"What's the {spoken.removeprefix('get ')} in {value} now?",
            f"Show me the {spoken.removeprefix('get ')} for {value}.",
            f"{spoken.capitalize()}: {value}",
            f"Call {called} for {value}",
        ]
    )
    return Wish(tool, asked, Source(random, True, value, asked, {key: value}, untidy=0.0, held=False))


def forced(random: Random, tool: Tool, question: str | None = None) -> Wish:
    """Return a request that has nothing to do with the tool, which a client forces all the same."""
    asked = question or unknown_prompt(random)
    return Wish(tool, asked, Source(random, True, fields.spoken(tool.name), short(asked), untidy=0.15))


def short(asked: str) -> str:
    """Return the user's words up to a pause, six at most."""
    words = asked.split("\n")[0].split()[:6]
    return " ".join(words).rstrip(",.;:?!").replace('"', "")[:60] or "nothing"
