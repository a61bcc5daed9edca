"""Tools of every kind, as clients define them."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from . import fields
from .filler import sentence
from .schemas import Field, random_object
from .vocabulary import ADJECTIVES, VERBS, alternatives, invented_word, word
from .weather import tool_definition

KNOWN_NAMES = alternatives("""
add|multiply|subtract|divide|search|web_search|get_time|get_current_time|get_date|calculator|send_email|send_mail|
read_file|write_file|list_files|run_command|get_stock_price|get_user|create_user|delete_user|create_event|
book_flight|find_restaurants|lookup|get_order|translate|roll_dice|get_random_number|get_joke|get_news|ping|refresh|
get_location|set_timer|play_music|create_ticket|query_database|fetch_url|remember|greet|shutdown|get_temperature
""")
FINAL_NAMES = alternatives(
    "final_result|final_answer|submit|respond|return_answer|Answer|Response|Result|structured_output|finish"
)


@attrs.frozen
class Tool:
    """A tool and the object that its calls take."""

    name: str
    arguments: Field
    definition: dict[str, Any]


def random_tool(random: Random, most: int = 4, final: bool = False) -> Tool:
    """Return a tool; one in five takes no arguments."""
    draw = random.random()
    if final:
        called = random.choice(FINAL_NAMES)
    elif draw < 0.3:
        called = random.choice(KNOWN_NAMES)
    elif draw < 0.55:
        called = f"{random.choice(VERBS)}_{word(random)}"
    elif draw < 0.65:
        called = f"get_{word(random)}" + random.choice(["", "", f"_{word(random)}"])
    elif draw < 0.73:
        called = random.choice(VERBS) + word(random).capitalize()
    elif draw < 0.8:
        called = word(random).capitalize()
    elif draw < 0.87:
        called = f"{random.choice(ADJECTIVES)}_{word(random)}"
    else:
        called = invented_word(random) + random.choice(["", f"_{word(random)}", "_function", "-tool"])
    if random.random() < 0.22 and not final:
        arguments = Field("", "object", random.choice(EMPTY))
    else:
        arguments = random_object(random, most=random.choice([1, 1, 2, 2, 3, most]))
    return Tool(called, arguments, defined(random, called, arguments))


EMPTY: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {}, "required": []},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    {"properties": {}, "title": "Empty", "type": "object"},
    {"type": "object"},
)


def defined(random: Random, called: str, arguments: Field) -> dict[str, Any]:
    described = random.choice(
        [sentence(random), fields.spoken(called).capitalize(), f"{fields.spoken(called)}.", ""]
    )
    definition = tool_definition(called, described, {}, [])
    function = definition["function"]
    function["parameters"] = arguments.schema
    if not described and random.random() < 0.5:
        del function["description"]
    if random.random() < 0.15:
        function["strict"] = True
    if random.random() < 0.15:
        function["parameters"] = dict(sorted(function["parameters"].items()))
    if random.random() < 0.1:
        for key in sorted(function):
            function[key] = function.pop(key)
    return definition
