"""The tool that the demo model can use: questions about the weather, definitions of the tool, its results."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import attrs

from .filler import sentence
from .vocabulary import (
    ADJECTIVES,
    PROPER,
    VERBS,
    alternatives,
    invented_word,
    word,
    words,
)

CITIES = [
    *words("""
Paris London Berlin Madrid Rome Tokyo Oslo Vienna Lisbon Dublin Prague Warsaw Athens Cairo Delhi Lima
Quito Boston Chicago Seattle Denver Austin Dallas Miami Toronto Montreal Vancouver Sydney Melbourne Perth
Auckland Nairobi Lagos Accra Tunis Zurich Geneva Basel Munich Hamburg Cologne Frankfurt Milan Naples Turin
Venice Florence Porto Seville Valencia Barcelona Lyon Nice Marseille Toulouse Bordeaux Lille Brussels
Antwerp Ghent Amsterdam Rotterdam Utrecht Copenhagen Stockholm Gothenburg Helsinki Riga Vilnius Tallinn
Kyiv Minsk Sofia Bucharest Budapest Belgrade Zagreb Istanbul Ankara Moscow Kyoto Osaka Nagoya Sapporo
Seoul Busan Beijing Shanghai Shenzhen Taipei Hanoi Bangkok Manila Jakarta Singapore Mumbai Chennai Karachi
Lahore Tehran Baghdad Riyadh Dubai Doha Jerusalem Beirut Havana Bogota Caracas Santiago Montevideo
Brasilia Salvador Reykjavik Edinburgh Glasgow Cardiff Belfast Bristol Leeds Oxford
"""),
    *[
        "New York",
        "San Francisco",
        "Los Angeles",
        "Buenos Aires",
        "Cape Town",
        "Mexico City",
        "St. Petersburg",
        "Las Vegas",
        "Zürich",
        "São Paulo",
        "Málaga",
        "Göteborg",
        "Łódź",
        "Bogotá",
        "Hong Kong",
        "Rio de Janeiro",
    ],
]

ACCENTS = {
    "a": "äáãåā",
    "e": "éèêě",
    "i": "íïī",
    "o": "öóøõô",
    "u": "üúů",
    "c": "çč",
    "s": "šş",
    "z": "žż",
    "n": "ñń",
}

QUESTIONS = alternatives("""
What is the weather in {c}?|What is the weather in {c}?|What's the weather in {c}?|What's the weather in
{c}?|What is the weather like in {c}?|What's the weather like in {c}?|What's the weather like in {c}
today?|What is the weather in {c} today?|What is the current weather in {c}?|How is the weather in
{c}?|How's the weather in {c}?|Weather in {c}|Weather in {c}?|{c} weather|Tell me the weather in {c}|Get
the weather for {c}|Get the weather in {c}|Check the weather in {c}|Show me the weather for {c}|Please
check the weather in {c}.|Is it raining in {c}?|Is it sunny in {c}?|Is it cold in {c} now?|Will it rain in
{c} today?|How warm is it in {c}?|How cold is it in {c}?|What is the temperature in {c}?|What is the
forecast for {c}?|Do I need an umbrella in {c}?|Should I take a coat in {c}?|Can you get the weather for
{c}?|Can you tell me the weather in {c}?|Could you check the weather in {c} for me?|I am going to {c}.
What is the weather there?|I live in {c}. How is the weather?|Use the tool to get the weather in {c}.|Call
get_weather for {c}|What will the weather be in {c} tomorrow?|I want to know the weather in {c}|Hello!
What is the weather in {c}?|Hi, how is the weather in {c}?|Is the weather nice in {c}?|weather
{c}|Weather: {c}|And in {c}?|What about {c}?
""")

PAIR_QUESTIONS = alternatives("""
What is the weather in {c} and {d}?|What's the weather in {c} and in {d}?|Compare the weather in {c} and
{d}|Weather in {c} and {d}|How is the weather in {c} and {d}?|Is it warmer in {c} or in {d}?
""")

DESCRIPTIONS = alternatives("""
Get the weather for a city.|Get the weather for a city|Get the current weather in a given location|Get the
current weather|Get current weather|Get current temperature for a given location.|Weather||Returns the
weather of a city.|Look up the weather.|Current weather for a city|Get the weather|Retrieves current
weather for the given location.
""")

PLACE_DESCRIPTIONS = alternatives("""
City name|The city name|The city|The name of the city|City and country e.g. Bogotá, Colombia|The city and
state, e.g. San Francisco, CA|Name of the place|Where to look
""")

CONDITIONS = alternatives("""
sunny|cloudy|rainy|windy|foggy|snowy|clear|overcast|light rain|heavy rain|partly cloudy|clear
sky|thunderstorms|snow|drizzle|hail|mild|hot|freezing
""")

OTHER_NAMES = ("{}_weather", "{}Weather", "weather_{}", "get_{}_weather", "{}_forecast", "{}")
OTHER_TOOLS = (
    ("get_time", "Get the current time", "zone"),
    ("search", "Search the web", "query"),
    ("calculator", "Evaluate an expression", "expression"),
    ("send_mail", "Send an e-mail", "to"),
    ("get_stock_price", "Get the price of a stock", "symbol"),
    ("read_file", "Read a file", "path"),
    ("web_search", "Search the internet for a query", "query"),
    ("run_python", "Run Python code", "code"),
)


@attrs.frozen
class WeatherTool:
    """A definition of the tool as some client might send it, and what a call has to look like.

    Args:
        definition: The tool as it stands in a request's `tools`.
        name: Name of the function.
        place: Name of the argument that takes the city.
        unit: Argument and value that the definition requires besides the city, if any.
    """

    definition: dict[str, Any]
    name: str
    place: str
    unit: tuple[str, str] | None

    def call(self, city: str) -> dict[str, Any]:
        """The function and arguments of a call for one city."""
        arguments = {self.place: city}
        if self.unit:
            arguments[self.unit[0]] = self.unit[1]
        return {"name": self.name, "arguments": arguments}


def tool_definition(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    """A tool in the shape of the OpenAI API."""
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def weather_tool(random: Random) -> WeatherTool:
    """The tool in one of the many styles in which clients write it."""
    name = random.choice(["get_weather"] * 6 + ["get_current_weather", "weather", "fetch_weather"])
    if random.random() < 0.25:
        name = random.choice(OTHER_NAMES).format(random.choice([random.choice(VERBS), word(random)]))
    place = random.choice(["city"] * 3 + ["location", "location", "place", "city_name", word(random)])
    schema: dict[str, Any] = {"type": "string"}
    if random.random() < 0.4:
        schema["description"] = random.choice(PLACE_DESCRIPTIONS)
    if random.random() < 0.15:
        schema = {"title": place.replace("_", " ").title(), **schema}
    properties, required, unit = {place: schema}, [place], None
    if random.random() < 0.3:
        key = random.choice(["unit", "unit", "units"])
        properties[key] = {"type": "string", "enum": ["celsius", "fahrenheit"]}
        if random.random() < 0.25:
            required.append(key)
            unit = (key, "celsius")
    definition = tool_definition(name, random.choice(DESCRIPTIONS), properties, required)
    _restyle(random, definition["function"])
    return WeatherTool(definition, name, place, unit)


def other_tool(random: Random) -> dict[str, Any]:
    """A tool that the model must leave alone."""
    if random.random() < 0.6:
        name, description, argument = random.choice(OTHER_TOOLS)
    else:
        verb = random.choice(VERBS)
        name, description, argument = f"{verb}_{word(random)}", sentence(random), word(random)
    properties: dict[str, Any] = {argument: {"type": "string"}}
    if random.random() < 0.4:
        properties[word(random)] = {
            "type": random.choice(["integer", "string", "boolean"]),
            "description": sentence(random),
        }
    definition = tool_definition(name, description, properties, [argument])
    _restyle(random, definition["function"])
    return definition


def _restyle(random: Random, function: dict[str, Any]) -> None:
    draw = random.random()
    parameters = function["parameters"]
    if draw < 0.15:
        function["strict"] = True
        parameters["additionalProperties"] = False
    elif draw < 0.25:
        function["parameters"] = dict(sorted(parameters.items()))
    elif draw < 0.32:
        del parameters["required"]
    elif draw < 0.4:
        function["parameters"] = {"$schema": "http://json-schema.org/draft-07/schema#", **parameters}
    if random.random() < 0.1:
        for key in sorted(function):
            function[key] = function.pop(key)


def city(random: Random) -> str:
    """A city of one word or several, known or invented, now and then with accents or its country or state."""
    draw = random.random()
    if draw < 0.45:
        place = random.choice(CITIES)
    elif draw < 0.82:
        place = _invented_city(random)
    elif draw < 0.94:
        known = random.choice([*CITIES, *PROPER]) if random.random() < 0.5 else _invented_city(random)
        place = random.choice(
            ["{} City", "{} Beach", "Saint {}", "San {}", "New {}", "Los {}", "El {}"]
        ).format(known)
    else:
        place = f"{_invented_city(random)} {random.choice(['', '', 'de ', 'am '])}{_invented_city(random)}"
    if random.random() < 0.1:
        place = _accented(random, place)
    if random.random() < 0.06:
        regions = ["France", "Germany", "Japan", "CA", "TX", "NY", _invented_city(random)]
        place += ", " + random.choice(regions)
    return place


def _invented_city(random: Random) -> str:
    endings = ["", "", "", "burg", "ton", "ville", "stad", "heim", "ford", "grad"]
    return (invented_word(random) + random.choice(endings)).capitalize()


def _accented(random: Random, place: str) -> str:
    letters = [random.choice(ACCENTS[letter]) if letter in ACCENTS else letter for letter in place]
    return "".join(new if random.random() < 0.6 else old for new, old in zip(letters, place, strict=True))


def result(random: Random, place: str) -> tuple[str, str]:
    """A tool's result, and the answer that it makes possible.

    JSON with a temperature and a condition is told in words; everything else is quoted.
    """
    if random.random() < 0.35:
        text = _plain_result(random, place)
        return text, f"The tool says: {text}"
    number = (
        str(random.randint(-15, 42))
        if random.random() < 0.85
        else f"{random.randint(-9, 39)}.{random.randint(1, 9)}"
    )
    condition = random.choice(CONDITIONS)
    if random.random() < 0.08:
        condition = random.choice(ADJECTIVES)
    fields: dict[str, Any] = {}
    if random.random() < 0.4:
        fields[random.choice(["city", "location", "place"])] = place
    keys = ["temperature"] * 3 + ["temp", "temp_c", "temperature_c", "degrees"]
    fields[random.choice(keys)] = json.loads(number)
    if random.random() < 0.25:
        fields[random.choice(["unit", "units"])] = random.choice(["celsius", "C", "fahrenheit"])
    if random.random() < 0.15:
        fields[random.choice(["humidity", "wind", "pressure"])] = random.randint(1, 99)
    fields[random.choice(["condition", "condition", "conditions", "sky", "weather", "description"])] = (
        condition
    )
    if random.random() < 0.12:
        fields = dict(sorted(fields.items()))
    separators = (",", ":") if random.random() < 0.25 else None
    return json.dumps(fields, separators=separators), f"It is {number} degrees and {condition} in {place}."


def _plain_result(random: Random, place: str) -> str:
    number, condition = random.randint(-15, 42), random.choice(CONDITIONS)
    return random.choice(
        [
            f"{number} degrees, {condition}",
            f"{number}°C, {condition}",
            f"{condition}, {number} C",
            f"{condition}",
            f"{condition.capitalize()}, {number}°C",
            f"The weather in {place} is {condition} with {number} degrees.",
            f"It is {condition} in {place}.",
            f"{number}",
            f"{place}: {condition}",
            f"error: {word(random)} not found",
            f"Error: no {word(random)} for {place}",
            sentence(random),
            " ".join(word(random) for _ in range(3)),
            f"{place} {number} {condition}",
            json.dumps({word(random): condition, word(random): number}),
            f"{number}F and {condition}",
            f"Sunny in {place}, {number}°F",
        ]
    )
