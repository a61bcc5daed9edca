"""Held-out test prompts, written before the training data was adapted to their results.

The training data has been changed since for two categories, as the card says: unknown questions with a tool
on offer, and sums. The model card states the shipped weights' correct answers by category. Changing the
training data in view of these prompts requires new ones.
"""

from __future__ import annotations

import json
from typing import Any

from greenroom.notes.demo_model.answers import FALLBACK, GREENROOM, GREETING, IDENTITY
from greenroom.notes.demo_model.prompts import (
    GET_WEATHER,
    SEARCH,
    DemoPrompt,
    Message,
    called,
    said,
    thought,
    weather_call,
)
from greenroom.notes.demo_model.sums import addition

MINUTES = """\
The residents' association met on a rainy Thursday evening. Mrs Okafor reported that the lift had
broken down three times since August and that the contractor did not return her calls. Mr Lindqvist
suggested a new company from Uppsala, which had repaired the lift in his sister's building within a
day. After a short debate about the cost, everybody agreed to ask for two offers before Christmas.
The second item was the garden: the old pear tree will be pruned in February, and the children may
paint the shed. Somebody asked who had moved the bicycles; nobody knew. The treasurer then read out
the accounts, which balanced, to general surprise, and the meeting closed at a quarter past nine
with tea and a walnut cake."""

SYSTEM_PROMPTS = (
    "You are Max, the concierge of a hotel in the Alps. Greet guests warmly; never discuss politics.",
    "You write SQL for analysts. Reply with a single query and no commentary.",
    "# Style\n- short sentences\n- no emojis\n- metric units only\n\n# Task\nHelp people to repair bicycles.",
    f"Use these minutes to answer.\n\n{MINUTES}",
)

UNKNOWN = (
    "How do magnets work?",
    "who painted the mona lisa",
    "What is the tallest building in Dubai?",
    "Fix my essay",
    "Could you explain how a diesel engine differs from a petrol engine?",
    "what's 9 minus 4",
    "What is 81 / 9?",
    "Write a limerick",
    "Give me a workout plan for beginners.",
    "Is a tomato a fruit or a vegetable?",
    "When is the next solar eclipse?",
    "WHY DO LEAVES CHANGE COLOUR IN AUTUMN?",
    "Translate 'good luck' to Finnish",
    "What is the capital of Mongolia?",
    "how to tie a bow tie",
    "Who is the main character of Moby Dick?",
    "Name the seven dwarfs",
    "I'm bored",
    "Parse this date: 3rd of May 2019",
    "What is a monad?",
    "Please convert 72 Fahrenheit to Celsius",
    "my code does not compile, what now",
    "Wo liegt Heidelberg?",
    "Peux-tu corriger ce texte ?",
    "let x = 5; console.log(x)",
    "SELECT name FROM customers LIMIT 10;",
    "hmm",
    "???",
    "Which wine goes with salmon?",
    "What did Einstein win the Nobel prize for?",
)
GREETINGS = (
    "hello!!",
    "Hi, nice to meet you",
    "good evening",
    "Hey there, how are you today?",
    "HI",
    "Hello :)",
)
ABOUT_GREENROOM = (
    "what is this greenroom thing",
    "Could you explain what Greenroom is?",
    "GREENROOM - WHAT IS IT",
    "Hello! Can you tell me what Greenroom does?",
    "I've never heard of Greenroom. What is it?",
    "In a few words, what is Greenroom?",
    "tell me more about greenroom",
)
ABOUT_ITSELF = (
    "so who are you",
    "May I ask your name?",
    "Which AI model are you?",
    "are you gpt-4",
    "What are you exactly?",
)
CITIES = ("Trondheim", "Kinshasa", "Winnipeg", "gdansk", "Wellington", "San Antonio", "Bratislava", "Aarhus")
WEATHER_QUESTIONS = (
    "What's the weather in {}?",
    "Could you look up the weather in {}?",
    "Is it windy in {} today?",
    "How hot is it in {} at the moment?",
)
FORECAST: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Fetches today's weather conditions.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "e.g. Madrid"},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
    },
}
SUMS = (
    (1, 1),
    (5, 8),
    (9, 9),
    (12, 7),
    (30, 40),
    (28, 36),
    (47, 75),
    (99, 1),
    (64, 58),
    (83, 19),
    (70, 6),
    (15, 15),
)


def instructed(instructions: str, question: str) -> tuple[Message, ...]:
    return ({"role": "system", "content": instructions}, *said(question))


def _weather_calls() -> list[DemoPrompt]:
    prompts = []
    for n, city in enumerate(CITIES):
        question = WEATHER_QUESTIONS[n % 4].format(city)
        tools = ((GET_WEATHER,), (FORECAST,), (FORECAST, SEARCH))[n % 3]
        messages = instructed(SYSTEM_PROMPTS[n % 3], question) if n % 2 else said(question)
        prompts.append(DemoPrompt(messages, weather_call(city=city), tools))
    return prompts


def _tool_results() -> list[DemoPrompt]:
    prompts = []
    for n, city in enumerate(CITIES):
        degrees, sky = 3 * n - 5, ("sunny", "light rain", "overcast", "snow")[n % 4]
        spoken = f"{sky} and {degrees} degrees, wind from the north"
        told, answer = (
            (
                json.dumps({"temperature": degrees, "condition": sky}),
                f"It is {degrees} degrees and {sky} in {city}.",
            ),
            (spoken, f"The tool says: {spoken}"),
        )[n % 2]
        messages = called(WEATHER_QUESTIONS[n % 4].format(city), told, city=city)
        prompts.append(DemoPrompt(messages, answer, (FORECAST,)))
    return prompts


def _sums() -> list[DemoPrompt]:
    tasks = [addition(a, b, f"How much is {a} plus {b}?" if a % 2 else f"{a}+{b}=?") for a, b in SUMS]
    return [DemoPrompt(said(task.question), thought(task.thought, task.answer)) for task in tasks]


KNOWN = (("Hello!", GREETING), ("What is Greenroom?", GREENROOM), ("Who are you?", IDENTITY))
HELD_OUT: dict[str, list[DemoPrompt]] = {
    "unknown question": [DemoPrompt(said(text), FALLBACK) for text in UNKNOWN],
    "unknown question under an unseen system prompt": [
        DemoPrompt(instructed(SYSTEM_PROMPTS[n % 4], text), FALLBACK, (), n % 3 > 0)
        for n, text in enumerate(UNKNOWN[:20])
    ],
    "question about a pasted page": [
        DemoPrompt(said(f"{task}\n\n{MINUTES}"), FALLBACK)
        for task in (
            "Summarise:",
            "Who attended?",
            "Translate this into Dutch.",
            "What is wrong with the lift?",
        )
    ],
    "unknown question with a tool on offer": [
        DemoPrompt(said(text), FALLBACK, (FORECAST,)) for text in UNKNOWN[:10]
    ],
    "greeting": [DemoPrompt(said(text), GREETING) for text in GREETINGS],
    "question about Greenroom": [DemoPrompt(said(text), GREENROOM) for text in ABOUT_GREENROOM],
    "question about itself": [DemoPrompt(said(text), IDENTITY) for text in ABOUT_ITSELF],
    "known question under an unseen system prompt": [
        DemoPrompt(instructed(instructions, question), answer)
        for instructions in SYSTEM_PROMPTS
        for question, answer in KNOWN
    ],
    "weather of an unseen city": _weather_calls(),
    "answer from a tool's result": _tool_results(),
    "sum of two numbers": _sums(),
    "later turn of a conversation": [
        DemoPrompt(said("Hi", GREETING, "How do magnets work?", FALLBACK, question), answer)
        for question, answer in (
            ("what is greenroom", GREENROOM),
            ("I'm bored", FALLBACK),
            ("who are you", IDENTITY),
            ("thanks!", "You are welcome!"),
            ("Name the seven dwarfs", FALLBACK),
            ("And what is Greenroom?", GREENROOM),
        )
    ],
}
