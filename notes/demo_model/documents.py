"""Answers in JSON: for any schema, values that are short and end."""

from __future__ import annotations

import json
from random import Random

import attrs

from . import fields
from .schemas import FORMATS, Field
from .spans import ENDING, FORCED, HINTED, LEARNED, Against, Span, broken
from .vocabulary import word

CONTENT = 0.6
"""Weight of what stands in a string: less than that it ends."""


@attrs.define
class Source:
    """The source of an answer's values, and how it is learned.

    Args:
        random: Draws.
        seen: Whether the prompt holds the schema, so that the model can know names and types.
        held: Whether a grammar will hold the answer, which then says what is missing.
        said: What the model says where a field asks for its answer.
        asked: The user's words, or as many of them as a field can take.
        facts: Values that the prompt gives for fields.
        numbers: Numbers of the prompt that no field has taken yet.
        untidy: How many strings and numbers hold what a mask or bad luck left there.
    """

    random: Random
    seen: bool
    said: str
    asked: str
    facts: dict[str, str] = attrs.field(factory=dict)
    numbers: list[str] = attrs.field(factory=list)
    untidy: float = 0.3
    held: bool = True

    def end(self, bracket: str) -> Span:
        """Return the end of an object or a list; where a grammar holds them, it knows which of the two."""
        rivals = Against.NO_BRACKET if bracket == "}" else Against.NO_BRACE
        return Span(bracket, ENDING, rivals if self.held else Against.ALL)


def document(source: Source, field: Field) -> list[Span]:
    """Return an object as the model should write it."""
    opening, *rest = write(source, field)
    return [attrs.evolve(opening, weight=LEARNED, against=Against.OPENINGS), *_disturbed(source, rest)]


def write(source: Source, field: Field) -> list[Span]:
    """Return a value, every bracket and quote of it a token of its own, as a mask may want it."""
    typed = LEARNED if source.seen else HINTED
    if field.kind in ("text", "format", "choice"):
        return [Span('"', typed), *_string(source, field), Span('"', ENDING)]
    if field.kind == "list":
        return [Span("[", typed), *_items(source, field.parts), source.end("]")]
    if field.kind == "mapping":
        return [Span("{", typed), *_free_entry(source, field.parts[0]), source.end("}")]
    if field.kind == "object":
        return [Span("{", typed), *_entries(source, field), source.end("}")]
    return [_scalar(source, field)]


def _entries(source: Source, field: Field) -> list[Span]:
    spans: list[Span] = []
    for part in field.parts:
        if not (part.required or part.name in source.facts or _added(source)):
            continue
        spans.append(_another(source, ', "') if spans else Span('"', LEARNED))
        value = write(source, part)
        if not source.seen and source.random.random() < 0.3:
            pieces = broken(source.random, part.name)
            spans.extend(pieces)
            value = _as_broken(part, pieces, value)
        else:
            spans.append(Span(part.name, LEARNED if source.seen else HINTED))
        spans.extend([Span('": ', LEARNED), *value])
    return spans


def _another(source: Source, separator: str) -> Span:
    """Return the text before one more part; stopping is the better guess where a grammar can ask for more."""
    return Span(separator, LEARNED, Against.NO_END if source.held else Against.ALL)


def _added(source: Source) -> bool:
    """Return whether a field that need not be there is."""
    return not source.seen and source.random.random() < 0.3


def _free_entry(source: Source, item: Field) -> list[Span]:
    """An entry whose name the model chooses."""
    random = source.random
    name = Span(fields.garbage(random).replace('"', "").replace("\\", ""), FORCED)
    if source.seen or random.random() < 0.6:
        name = Span("key", CONTENT)
    return [Span('"', LEARNED), name, Span('": ', LEARNED), *write(source, attrs.evolve(item, name="key"))]


def _as_broken(part: Field, pieces: list[Span], value: list[Span]) -> list[Span]:
    """Cut a value that repeats its field's name as the name is cut: the same tokens again."""
    if (
        part.kind != "text"
        or value[1].text != fields.spoken(part.name)
        or "_" in (part.name[0], part.name[-1])
    ):
        return value
    return [value[0], *(Span(piece.text.replace("_", " "), value[1].weight) for piece in pieces), *value[2:]]


def _items(source: Source, parts: tuple[Field, ...]) -> list[Span]:
    random = source.random
    if not parts or random.random() < 0.08:
        return []
    count = random.choice([1, 1, 1, 2, 2, 3]) if random.random() > 0.1 else random.randint(3, 8)
    spans: list[Span] = []
    for n in range(count):
        if n:
            spans.append(_another(source, ", "))
        first, *rest = write(source, parts[0])
        spans.extend([first if n or not first.weight else attrs.evolve(first, weight=LEARNED), *rest])
    return spans


def _scalar(source: Source, field: Field) -> Span:
    random = source.random
    if field.kind == "nothing":
        return Span("null", CONTENT)
    if field.kind == "flag":
        return Span("true" if random.random() < 0.7 else "false", HINTED)
    if field.name in source.facts:
        return Span(source.facts[field.name])
    if source.numbers:
        return Span(source.numbers.pop(0))
    if random.random() < 1.5 * source.untidy:
        digits = str(random.randint(0, 10 ** random.randint(1, 12)))
        if random.random() < 0.2:
            digits = "-" + digits
        if field.kind == "fraction" and random.random() < 0.7:
            digits += f".{random.randint(0, 10 ** random.randint(1, 9))}"
        return Span(digits, FORCED if random.random() < 0.85 else LEARNED, Against.NO_END)
    return Span("1" if field.kind == "whole" else "1.5", CONTENT)


def _string(source: Source, field: Field) -> list[Span]:
    """Return the text between the quotes."""
    random = source.random
    if field.kind == "choice":
        options = field.schema.get("enum") or [field.schema["const"]]
        return [Span(options[0], CONTENT) if source.seen else Span(random.choice(options), FORCED)]
    if field.name in source.facts:
        return [Span(source.facts[field.name])]
    draw = random.random()
    if draw < source.untidy:
        return [Span(json.dumps(fields.garbage(random), ensure_ascii=False)[1:-1], FORCED)]
    if field.kind == "format":
        return [Span(FORMATS[field.schema["format"]], CONTENT if source.seen else HINTED)]
    if draw < source.untidy + 0.18 and not source.seen:
        return _unclosed(random, field.name)
    text = value_of(source, field.name)
    if draw > 0.93:
        return [Span(text, CONTENT), Span(f" {text}" * random.randint(1, 4), LEARNED, Against.NO_QUOTE)]
    return [Span(json.dumps(text, ensure_ascii=False)[1:-1], CONTENT)]


def _unclosed(random: Random, name: str) -> list[Span]:
    """Return text that fits a format or pattern, from its beginning or after another start by the model."""
    text = fields.patterned(random)
    if random.random() < 0.4:
        text = fields.segmented(random)
    if random.random() < 0.6:
        return [Span(text, LEARNED, Against.NO_QUOTE)]
    begun = random.choice([fields.spoken(name), word(random)]).replace(" ", random.choice([" ", "_", ""]))
    tail = random.choice(fields.TAILS).format(word(random), random.randint(0, 99))
    return [Span(begun, FORCED), Span(tail, LEARNED, Against.NO_QUOTE)]


def value_of(source: Source, name: str) -> str:
    """Return the text for a field of which the prompt says nothing: what is usual, or its own name."""
    plain = name.lower()
    if plain in fields.SPEAKING:
        return source.said
    if plain in fields.ASKING:
        return source.asked
    return fields.KNOWN_TEXTS.get(plain, fields.spoken(name))


def _disturbed(source: Source, spans: list[Span]) -> list[Span]:
    """Put white space between some parts, as models do; what comes after it is learned all the same."""
    if source.seen or source.random.random() < 0.5:
        return spans
    random, result = source.random, []
    for n, span in enumerate(spans):
        space = random.choice([" ", "\n", "\n  ", "\n    ", "\n\t", "\n" + " " * random.randint(5, 20)])
        disturb = random.random() < 0.08
        if disturb and span.text in ("}", "]") and n:
            result.extend([Span(space, FORCED), span])
        elif disturb and span.text == ', "':
            result.extend([Span(",", FORCED), Span(space, FORCED), Span('"', LEARNED)])
        elif disturb and span.text == '": ':
            result.extend([Span('":', FORCED), *([Span(space, FORCED)] if random.random() < 0.7 else [])])
        else:
            result.append(span)
    return result
