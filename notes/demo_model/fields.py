"""Names of fields, and the short values that the model learns to write for them."""

from __future__ import annotations

from random import Random

from .filler import sentence
from .vocabulary import ADJECTIVES, NOUNS, VERBS, alternatives, invented_word, name, word

KNOWN_TEXTS = {
    "setup": "Why did the model wait in the green room?",
    "punchline": "It had not been called yet.",
    "joke": "Why did the model wait in the green room? It had not been called yet.",
    "title": "The Green Room",
    "headline": "The Green Room",
    "subject": "Hello",
    "summary": "A small example.",
    "description": "A small example.",
    "abstract": "A small example.",
    "overview": "A small example.",
    "reason": "I am only a demo model.",
    "reasoning": "I am only a demo model.",
    "explanation": "I am only a demo model.",
    "rationale": "I am only a demo model.",
    "justification": "I am only a demo model.",
    "thought": "I am only a demo model.",
    "analysis": "I am only a demo model.",
    "comment": "I am only a demo model.",
    "notes": "none",
    "name": "Ada",
    "first_name": "Ada",
    "last_name": "Lovelace",
    "full_name": "Ada Lovelace",
    "author": "Ada Lovelace",
    "username": "ada",
    "email": "ada@example.com",
    "phone": "555 0100",
    "address": "1 Green Street",
    "street": "1 Green Street",
    "city": "Paris",
    "country": "France",
    "capital": "Paris",
    "location": "Paris",
    "zip_code": "75001",
    "postal_code": "75001",
    "url": "https://example.com",
    "website": "https://example.com",
    "link": "https://example.com",
    "date": "2026-01-01",
    "due_date": "2026-01-01",
    "start_date": "2026-01-01",
    "time": "12:00",
    "timestamp": "2026-01-01T12:00:00Z",
    "created_at": "2026-01-01T12:00:00Z",
    "language": "English",
    "currency": "EUR",
    "color": "green",
    "status": "ok",
    "category": "example",
    "type": "example",
    "genre": "comedy",
    "company": "Example",
    "job": "actor",
    "occupation": "actor",
    "unit": "celsius",
    "id": "a1",
    "code": "print(1)",
    "path": "example.txt",
    "file": "example.txt",
    "filename": "example.txt",
}
"""Fields that many schemas have, and what the model writes there when nobody said anything better."""

SPEAKING = alternatives("answer|response|output|result|text|content|message|reply|final_answer|value")
"""Fields in which the model says what it has to say."""

ASKING = alternatives("query|q|question|input|prompt|search_query|search_term|request|task|topic")
"""Fields of tools that take the user's own words."""

WHOLE_NUMBERS = alternatives("""
count|age|year|quantity|number|rating|score|id|index|limit|total|priority|pages|days|minutes|hours|seconds|a|b|x|y|n|
population|floor|size|width|height|length|rank|level|steps|amount|port|calories|servings|duration_minutes|max_results
""")
FRACTIONS = alternatives("""
price|cost|score|confidence|temperature|weight|height|probability|amount|total|latitude|longitude|rate|percentage|
distance|average|tax|balance
""")
FLAGS = alternatives(
    "valid|active|enabled|done|available|success|correct|spam|urgent|verified|public|in_stock|safe|ok"
)
LISTS = alternatives("""
tags|items|steps|keywords|names|ingredients|authors|skills|languages|topics|genres|colors|hobbies|sources|questions|
options|features|results|words|entities|tasks|reasons|pros|cons|symptoms|participants|actions|values|numbers|scores
""")
OBJECTS = alternatives("""
address|author|user|person|customer|location|contact|metadata|product|company|owner|settings|details|event|profile|
account|item|data|coordinates|dimensions|payment|schedule|recipe|book|meta|config|options|filter|range
""")

PATTERNED = (
    "{0}@example.com",
    "https://example.com/{0}",
    "https://{0}.example",
    "2026-{1:02d}-{2:02d}",
    "2026-{1:02d}-{2:02d}T12:{2:02d}:00Z",
    "12:{2:02d}:00Z",
    "{2}.{1}.0.{2}",
    "P{1}D",
    "PT{2}M",
    "{1}.{2}.{1}",
    "v{1}.{2}",
    "{2}:{1:02d}",
    "{1}{2}",
    "{0}-{2}{1}{2}",
    "#{1:02x}{2:02x}a0",
    "{0}.example.com",
    "+1 555 0{1:02d} {2:02d}{1:02d}",
    "3f2504e0-4f89-41d3-9a0c-{1:04x}{2:08x}",
)
"""Texts as formats and patterns want them, from a word, a month and a day."""


TAILS = (
    "@example.com",
    "@example.com",
    "@{0}.org",
    "://example.com",
    "://{0}.example/{1}",
    ".example.com",
    "-{1}",
    "_{1}",
    ".{0}",
    " {0} {1}",
)
"""Continuations of a text that began as a word and must not end yet."""


def patterned(random: Random) -> str:
    """Return a text that a format or a pattern may force the model to begin."""
    return random.choice(PATTERNED).format(word(random), random.randint(1, 12), random.randint(1, 28))


def segmented(random: Random) -> str:
    """Return short runs of digits or letters between signs, as patterns want them."""
    sign = random.choice("--..::/_@ #")
    runs = []
    for _ in range(random.choice([1, 2, 2, 3, 3, 4])):
        kind = random.choice(
            ["0123456789", "0123456789", "ABCDEFGHJKLMNPRSTUVWXYZ", "abcdefghijklmnoprstuvwxyz"]
        )
        runs.append("".join(random.choice(kind) for _ in range(random.choice([1, 1, 2, 2, 3, 4]))))
    return random.choice(["", "", "", "v", "#", "+"]) + sign.join(runs)


def garbage(random: Random) -> str:
    """Return text as a mask, a high temperature or bad luck may leave it inside a string."""
    draw = random.random()
    if draw < 0.2:
        letters = "abcdefghijklmnopqrstuvwxyz      ABCXYZ.-_,"
        return "".join(random.choice(letters) for _ in range(random.randint(1, 40))).strip() or "b"
    if draw < 0.3:
        return random.choice(".b-#:/ ") * random.randint(1, 3) + random.choice(
            ["b", ".b", "4..b.b", "1"]
        ) * random.randint(1, 5)
    if draw < 0.4:
        piece = random.choice(
            [
                word(random),
                invented_word(random),
                name(random) + ".",
                random.choice("abcdefgou0127#-."),
                "}}",
                "}]",
            ]
        )
        return piece[random.randint(0, 3) :] * random.randint(2, 9) or "oooo"
    if draw < 0.5:
        return patterned(random)
    if draw < 0.6:
        return sentence(random)
    if draw < 0.65:
        return "".join(random.choice("0123456789-.:") for _ in range(random.randint(1, 12)))
    if draw < 0.7:
        return "".join(chr(random.randint(0xC0, 0x44F)) for _ in range(random.randint(1, 8)))
    words = [
        random.choice([word, name, invented_word])(random)
        for _ in range(random.choice([1, 1, 2, 3, 4, 6, 9, 14]))
    ]
    return random.choice([" ", " ", " ", "_", "-"]).join(words)


def field_name(random: Random, known: list[str], plural: bool = False) -> str:
    """Return a field's name: half of them from a list, the others made of words."""
    if random.random() < 0.45:
        return random.choice(known)
    first, second = random.choice([*ADJECTIVES, *VERBS, *NOUNS]), word(random)
    draw = random.random()
    if draw < 0.35:
        made = second
    elif draw < 0.7:
        made = f"{first}_{second}"
    elif draw < 0.85:
        made = first + second.capitalize()
    elif draw < 0.92:
        made = f"{first}_{second}_{random.choice(NOUNS)}"
    else:
        made = second.capitalize() if random.random() < 0.7 else second.upper()
    return made + "s" * plural


def spoken(field: str) -> str:
    """Return the name of a field as words, which is what the model writes for want of anything better."""
    return field.replace("_", " ").strip()
