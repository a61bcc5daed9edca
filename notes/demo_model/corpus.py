"""The demo model's training data: conversations made from word lists, no foreign text.

Everything follows from the seed: `examples(seed)` yields the same conversations on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import attrs

from .answers import FALLBACK, TOPICS
from .conversation import Example, Message, call_text, called_message, result_message
from .filler import fill, prose, system_prompt, unknown_prompt
from .sums import random_sum
from .vocabulary import invented_word, word
from .weather import (
    PAIR_QUESTIONS,
    QUESTIONS,
    WeatherTool,
    city,
    other_tool,
    result,
    weather_tool,
)


@attrs.frozen
class Turn:
    """One exchange: what is asked, and what the model should write.

    Args:
        messages: The user's message, and for an answer from a tool also the call and its result.
        target: What the model should write with thinking on.
        brief: The same with thinking off.
        history: The exchange as later turns see it; empty where it cannot be followed.
        exemplary: Whether the answers in the history are what the model should write, word for word.
    """

    messages: tuple[Message, ...]
    target: str
    brief: str
    history: tuple[Message, ...] = ()
    exemplary: bool = True


def examples(seed: int) -> Iterator[Example]:
    """An endless stream of training conversations."""
    random = Random(seed)
    while True:
        yield conversation(random)


def exercises(seed: int) -> Iterator[Example]:
    """An endless stream of short exercises in repeating a span and in sums, the hardest things to learn."""
    random = Random(seed)
    while True:
        yield exercise(random)


def conversation(random: Random) -> Example:
    """A system prompt or none, some earlier turns, and the turn to answer."""
    tool = weather_tool(random)
    wants_tool = random.random() < 0.34
    offered = _offer(random, tool, wants_tool)
    messages: list[Message] = []
    exemplary: list[bool] = []
    if random.random() < 0.35:
        messages.append({"role": "system", "content": system_prompt(random)})
    for _ in range(random.choice([0] * 10 + [1, 1, 1, 1, 2, 2, 3, 3, 10])):
        earlier = _turn(random, tool, wants_tool and random.random() < 0.5)
        messages.extend(earlier.history)
        exemplary.extend(earlier.exemplary for message in earlier.history if message["role"] == "assistant")
    turn = _turn(random, tool, wants_tool)
    if not wants_tool and tool.definition not in (offered or []) and random.random() < 0.05:
        turn = _plain_turn(_place_and_question(random)[1], FALLBACK)
    thinking = random.random() < 0.7
    messages.extend(turn.messages)
    exemplary.extend(False for message in turn.messages if message["role"] == "assistant")
    return Example(messages, offered, thinking, turn.target if thinking else turn.brief, tuple(exemplary))


def _offer(random: Random, tool: WeatherTool, wanted: bool) -> list[dict[str, Any]] | None:
    """The tools of one request: none, others only, or the weather tool among any number of others."""
    if not wanted and random.random() < 0.85:
        return None
    tools = [other_tool(random) for _ in range(random.choice([0, 0, 0, 0, 1, 1, 1, 3]))]
    if wanted or random.random() < 0.6:
        tools.insert(random.randint(0, len(tools)), tool.definition)
    return tools or None


def _turn(random: Random, tool: WeatherTool, use_tool: bool) -> Turn:
    if use_tool:
        draw = random.random()
        if draw < 0.5:
            return _weather_call(random, tool)
        if draw < 0.88:
            return _weather_answer(random, tool)
        return _pair(random, tool)
    draw = random.random()
    if draw < 0.32:
        return _plain_turn(*_topic(random))
    if draw < 0.77:
        return _plain_turn(unknown_prompt(random), FALLBACK)
    if draw < 0.96:
        return _sum_turn(random)
    return _plain_turn(*_echo(random))


def _plain_turn(question: str, answer: str) -> Turn:
    asked = {"role": "user", "content": question}
    return Turn((asked,), answer, answer, (asked, {"role": "assistant", "content": answer}))


def _topic(random: Random) -> tuple[str, str]:
    topic = random.choices(TOPICS, [topic.weight for topic in TOPICS])[0]
    question = random.choice(topic.questions)
    if topic.about_anything and random.random() < 0.4:
        question = question.rstrip(".?") + fill(
            random, random.choice([" about {n}s", " about a {a} {n}", " about {t}"])
        )
    return vary(random, question), topic.answer


def _sum_turn(random: Random) -> Turn:
    task = random_sum(random)
    asked = {"role": "user", "content": vary(random, task.question)}
    return Turn(
        (asked,),
        f"<think>\n{task.thought}\n</think>\n\n{task.answer}",
        f"{task.thought} {task.answer}",
        (asked, {"role": "assistant", "content": task.answer}),
        exemplary=False,
    )


def _echo(random: Random) -> tuple[str, str]:
    text = " ".join(random.choice([word, invented_word, city])(random) for _ in range(random.randint(1, 7)))
    return random.choice(["Repeat: ", "Repeat after me: ", "Echo: ", "Repeat this: "]) + text, text


def _weather_call(random: Random, tool: WeatherTool) -> Turn:
    place, question = _place_and_question(random)
    asked, call = {"role": "user", "content": question}, tool.call(place)
    return Turn((asked,), call_text(call), call_text(call))


def _weather_answer(random: Random, tool: WeatherTool) -> Turn:
    place, question = _place_and_question(random)
    asked, call = {"role": "user", "content": question}, tool.call(place)
    text, answer = result(random, place)
    foreign = random.random() < 0.1
    if foreign:
        asked = {"role": "user", "content": unknown_prompt(random)}
        call = {"name": other_tool(random)["function"]["name"], "arguments": {word(random): word(random)}}
        text = random.choice([prose(random, 1), word(random), str(random.randint(0, 9999))])
        answer = f"The tool says: {text}"
    messages = (asked, called_message(call), result_message(text))
    return Turn(
        messages, answer, answer, (*messages, {"role": "assistant", "content": answer}), exemplary=not foreign
    )


def _pair(random: Random, tool: WeatherTool) -> Turn:
    """Two cities in one question: two calls at once, then one answer from both results."""
    first, second = city(random), city(random)
    question = random.choice(PAIR_QUESTIONS).format(c=first, d=second)
    asked = {"role": "user", "content": question}
    calls = tool.call(first), tool.call(second)
    if random.random() < 0.6:
        target = "\n".join(call_text(call) for call in calls)
        return Turn((asked,), target, target)
    results = result(random, first), result(random, second)
    called = called_message(*calls)
    messages = (asked, called, *(result_message(text) for text, _ in results))
    answer = " ".join(answer for _, answer in results)
    return Turn(messages, answer, answer)


def _place_and_question(random: Random) -> tuple[str, str]:
    place, frame = city(random), random.choice(QUESTIONS)
    draw = random.random()
    if draw < 0.12:
        place, frame = place.lower(), frame.lower()
    elif draw < 0.16:
        place, frame = place.upper(), frame.upper().replace("{C}", "{c}")
    elif draw < 0.26:
        frame = frame.rstrip("?.")
    elif draw < 0.36 and frame.endswith("{c}?"):
        frame = frame[:-1] + random.choice(
            [" right now?", " tonight?", " tomorrow?", " this morning?", " now?"]
        )
    return place, frame.format(c=place)


def vary(random: Random, question: str) -> str:
    """The same question as a careless, loud or polite person types it."""
    draw = random.random()
    bare = question.rstrip("?.!")
    if draw < 0.5:
        return question
    if draw < 0.62:
        return bare
    if draw < 0.7:
        return question.lower()
    if draw < 0.78:
        return bare.lower()
    if draw < 0.83:
        return question.upper()
    if draw < 0.87:
        return bare + random.choice(["!", ".", "??", "...", " ?", "!!"])
    if draw < 0.9:
        return bare + ", please" + question[len(bare) :]
    if draw < 0.95:
        opening = random.choice(
            ["Hello, ", "Hi, ", "Hey, ", "OK, ", "Please: ", "Hello! ", "Hi there. ", "So, ", "Now: "]
        )
        return opening + (question if random.random() < 0.5 else question[0].lower() + question[1:])
    if draw < 0.98:
        at = random.randrange(len(question))
        return question[:at] + question[at + 1 :] if len(question) > 6 else question
    return f" {question} "


def exercise(random: Random) -> Example:
    """Add, repeat some words, name a city in a call, or tell a result, with little else around it."""
    if random.random() < 0.45:
        turn, thinking = _sum_turn(random), random.random() < 0.6
        return Example(list(turn.messages), None, thinking, turn.target if thinking else turn.brief)
    draw = random.random()
    if draw < 0.5:
        question, answer = _echo(random)
        return Example([{"role": "user", "content": question}], None, random.random() < 0.8, answer)
    tool = weather_tool(random)
    place, question = _place_and_question(random)
    asked = {"role": "user", "content": question}
    if draw < 0.75:
        return Example([asked], [tool.definition], random.random() < 0.8, call_text(tool.call(place)))
    text, answer = result(random, place)
    messages = [asked, called_message(tool.call(place)), result_message(text)]
    return Example(messages, None, random.random() < 0.8, answer, (False,))
