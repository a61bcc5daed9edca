"""Text that the demo model cannot answer, and system prompts that must not disturb it.

A model this small answers everything as if it knew it, unless most of what it sees in training is unknown.
All of this text is made from the word lists and frames below; every draw comes from the given generator.
"""

# ruff: noqa: RUF001 - prompts in many scripts belong here
from __future__ import annotations

import json
from random import Random

from .vocabulary import ADJECTIVES, SMALL_WORDS, VERBS, alternatives, name, word

TOPICS = alternatives("""
quantum mechanics|machine learning|the French revolution|photosynthesis|black holes|the theory of
relativity|the stock market|world war two|climate change|the water cycle|prime numbers|linear algebra|a
binary search tree|recursion|the Roman empire|plate tectonics|natural selection|supply and demand|the
speed of light|the meaning of life|neural networks|a transformer|attention|gradient descent|garbage
collection|async and await|a mutex|a deadlock|REST|SQL joins|regular expressions|the moon landing|the
human heart|DNA|vaccines|renewable energy|jazz|chess openings|sourdough bread|a mortgage|compound
interest|the offside rule|yoga|insomnia|a greenhouse|green tea|the green party|a server|a web server|a
model|actors|theatre|an actor model|inference|a local network|a framework|an array|Apple|silicon|a GPU
""")

FRAMES = alternatives("""
What is {t}?|What is {t}?|What are {n}s?|What does {t} mean?|Explain {t}|Explain {t} to a child|Explain
{t} in simple terms|Tell me about {t}|Tell me about {p}|Who is {p}?|Who was {p}?|Who invented the {n}?|Who
wrote {p}?|Who discovered {t}?|Where is {p}?|Where can I buy a {a} {n}?|When was {p} born?|When did {t}
begin?|Why is the {n} {a}?|Why do {n}s {v}?|How do I {v} a {n}?|How do I {v} a {n} in {p}?|How can I {v}
my {n}?|How many {n}s are in a {n}?|How much does a {n} cost?|How long does it take to {v} a {n}?|How old
is {p}?|How tall is {p}?|How does {t} work?|How does a {n} work?|What is the capital of {p}?|What is the
capital of {p}?|What is the population of {p}?|What is the {a}est {n} in {p}?|What is the difference
between {t} and {t}?|What is the best {n} for {p}?|What is the largest {n}?|What colour is the {n}?|What
time is it?|What time is it in {p}?|What day is it today?|What is the date?|What is the meaning of
{n}?|What should I {v} today?|What should I cook?|Which {n} is {a}?|Is {p} a {n}?|Is the {n} {a}?|Are {n}s
{a}?|Can you {v} a {n}?|Can you {v} this {n} for me?|Could you {v} {t}?|Do you like {n}s?|Do you know
{p}?|Does {p} have a {n}?|Should I {v} a {a} {n}?|Will it {v} tomorrow?|Write a {n} about {n}s|Write a
letter to {p}|Write an email to my {n}|Write an essay on {t}|Write a function that {v}s a {n}|Write a
Python script to {v} a {n}|Write code to {v} {n}s|Write a {p} program|Write a SQL query to {v} the
{n}s|Write hello world in {p}|Give me a list of {n}s|Give me a recipe for {n}|Give me three {n}s|Give me a
JSON object with {n} and {n}|List five {a} {n}s|List three colours|Name a {n}|Translate {n} to
{p}|Translate "{s}" to {p}|Translate to {p}: {s}|How do you say {n} in {p}?|Summarise {t}|Summarise this:
{s}|Summarize the following text: {s}|Fix this: {s}|Correct the grammar: {s}|Rewrite this sentence:
{s}|Continue: {s}|Complete the sentence: {s}|Is this sentence correct? {s}|{v} the {n}|{v} {n}|{v} {t}|{a}
{n}|{n}|{p}|{t}|{n} {n} {n}|{s}|{s}|{s} {s}|I want to {v} a {n}|I need a {a} {n}|I need help with my {n}|I
have a {n} and a {n}|I am {a}|I think {t} is {a}|I like {n}s|My {n} is {a}. What can I do?|My {n} does not
{v}. How do I {v} it?|My name is {p}|Let us talk about {t}|Please {v} the {n}|Please {v} {t} in
{p}|Suggest a {n} for {p}|Recommend a {a} {n}|Compare {p} and {p}|Sort these: {n}, {n}, {n}|What rhymes
with {n}?|Spell {n}|Define {n}|Convert {m} {n}s to {n}s|Solve x + {m} = {m}|What is {m} percent of
{m}?|What is the square root of {m}?|Is {m} a prime number?|What is the derivative of x{m}?|Count the
{n}s|Count to {m}00|Count backwards from {m}|Tell me a fact about {n}s|Tell me something about {p}|Tell me
the time|Tell me the {n} of {p}|Tell me more|Tell me how to {v} a {n}|Who won the {n} in {m}?|Who is the
president of {p}?|What happened in {m}?|What is your {a} {n}?|What is your opinion on {t}?|Are you {a}?|Do
you have a {n}?|Can you {v}?|You are a {n}|Pretend to be a {n}|Act as a {n} and {v} {t}|Imagine a {a} {n}.
{s}|Why?|How?|And then?|What else?|Really?|Say {n}|Say the word {n}|Repeat the {n}|Answer with one word:
is the {n} {a}?|Reply with yes or no. Is {p} {a}?|Think step by step: {s}|Use the {n} to {v} the {n}|Find
the {n}|Search the web for {t}|Send a mail to {p}|Set a timer for {m} minutes|Play some {n}|Turn on the
{n}|Book a {n} to {p}|What is {m} * {m}?|What is {m} times {m}?|{m} * {m}|{m} x {m}|Multiply {m} by
{m}|What does error {m} mean?|What does {p} {m} mean?|What is a {n} {m}?|What is {m}?|Is {m} bigger than
{m}?|The {n} has {m} {n}s|What is the capital of {p}|Capital of {p}|capital of {p}?|Are you sure?|Are you
sure about that?|Are you certain?|Are you kidding?|What?|what?|What do you mean?|Pardon?|Sorry?|Wait,
what?|Huh?|Yes|No|OK|Next|Explain|Explain that|Say that again|Why not?|Who?|Where?|When?|What is the
purpose of {t}?|What is the purpose of a {n}?|What is the main {n} of this?|What is the point of {t}?|How
is {p}?|How is the {n}?
""")

FOREIGN = alternatives("""
Wie spät ist es?|Was ist die Hauptstadt von Italien?|Schreibe ein Gedicht über den Herbst|
Erkläre mir die Relativitätstheorie|Kannst du mir bei den Hausaufgaben helfen?|
Quelle heure est-il ?|Comment faire une omelette ?|Écris un poème sur la mer|
Explique la photosynthèse|Qui a écrit ce livre ?|¿Qué hora es?|¿Cómo se hace una tortilla?|
Escribe un cuento sobre un dragón|Explícame la gravedad|¿Quién eres tú y qué quieres?|
Che ore sono?|Scrivi una poesia sul mare|Dove si trova la stazione?|Que horas são?|
Escreva um poema|Hoe laat is het?|Vad är klockan?|Która jest godzina?|Kolik je hodin?|
Который час?|Напиши стихотворение|你好吗|现在几点|请写一首诗|什么是机器学习|今何時ですか|
詩を書いてください|몇 시예요|시를 써 주세요|كم الساعة|מה השעה|Saat kaç?|Τι ώρα είναι;|bạn là ai|
समय क्या है
""")

CODE = (
    "def {n}(x):\n    return x + {m}",
    "for {n} in {n}s:\n    print({n})",
    "SELECT {n} FROM {n}s WHERE {n} = {m};",
    "import {n}\n{n}.{v}()",
    '<div class="{n}">{n}</div>',
    "const {n} = ({n}) => {n}.{v}({m});",
    "ls -la /{n}/{n}",
    "Traceback (most recent call last): {n} line {m}: {n}Error: {n}",
    "git {v} {n}",
    "{n} = [{m}, {m}, {m}]",
    "- {n}\n- {n}\n- {n}",
    "1. {v} the {n}\n2. {v} the {n}",
    "# {n}\n\n{s}\n\n## {n}\n\n{s}",
    "{n},{n},{n}\n{m},{m},{m}",
    "https://{n}.example/{n}/{m}",
    "{n}@{n}.example",
    "x = {m}; y = {m}; x - y",
    "{m} - {m}",
    "{m} / {m}",
    "{m}",
    "What is {m} - {m}?",
    "What is {m} / {m}?",
    "{m} + {m} + {m}",
    "What is {m}{m}{m} * {m}{m}?",
    "What is 1{m}{m} + {m}?",
)

ROLES = alternatives("""
You are a helpful assistant.|You are a helpful assistant.|You are a friendly chatbot.|You are a coding
assistant.|Be brief.|Be concise.|Answer in one sentence.|You are a {a} {n}.|You are a {n} who likes to {v}
{n}s.|You are an expert in {t}.|You are an AI assistant for {p}.|You answer questions about {t}.|Always
answer in {p}.|Never {v} the {n}.|Keep your answers under {m} words.|The user is a {n}.|Think before you
answer.|Today is {p}, {m} {p} 20{m}.|Respond in JSON.|Use the tools if you need them.|You can {v} {n}s.|Do
not talk about {t}.|Speak like a {a} {n}.|If you do not know, say so.|Your name is {p}.|Use markdown.|Cite
your sources.|You are {p}, made by {p}.|You are running on a local machine.|You are a {n} assistant. {s}
{s}|Rules: {v} the {n}; {v} the {n}.|You may {v} the {n}, but never {v} the {n}.
""")


def sentence(random: Random) -> str:
    """A statement that reads like English prose without meaning anything."""
    words = []
    for _ in range(random.randint(4, 18)):
        draw = random.random()
        if draw < 0.42:
            words.append(random.choice(SMALL_WORDS))
        elif draw < 0.72:
            words.append(word(random))
        elif draw < 0.84:
            words.append(random.choice(VERBS) + random.choice(["", "s", "ed", "ing"]))
        elif draw < 0.93:
            words.append(random.choice(ADJECTIVES))
        else:
            words.append(name(random))
        if random.random() < 0.07:
            words[-1] += random.choice([",", ",", ";", ":"])
    text = " ".join(words)
    return text[0].upper() + text[1:] + random.choice([".", ".", ".", "?", "!"])


def fill(random: Random, frame: str) -> str:
    """Fills a frame's slots: {n}oun, {v}erb, {a}djective, {p}roper name, {t}opic, nu{m}ber, {s}entence."""
    pieces = frame.split("{")
    text = pieces[0]
    for piece in pieces[1:]:
        if len(piece) > 1 and piece[1] == "}" and piece[0] in SLOTS:
            text += SLOTS[piece[0]](random) + piece[2:]
        else:
            text += "{" + piece
    return text


SLOTS = {
    "n": word,
    "v": lambda random: random.choice(VERBS),
    "a": lambda random: random.choice(ADJECTIVES),
    "p": name,
    "t": lambda random: random.choice(TOPICS) if random.random() < 0.6 else word(random),
    "m": lambda random: str(random.randint(2, random.choice([12, 99, 2030]))),
    "s": sentence,
}


def noise(random: Random) -> str:
    """Texts that land in a chat by accident: keys, digits, symbols, JSON."""
    draw = random.random()
    if draw < 0.3:
        letters = "abcdefghijklmnopqrstuvwxyz"
        return "".join(random.choice(letters) for _ in range(random.randint(1, 14)))
    if draw < 0.5:
        return "".join(
            random.choice("?!.,:;-_+*/#@%&()[]{}<>|~ 0123456789") for _ in range(random.randint(1, 10))
        )
    if draw < 0.7:
        return json.dumps(
            {word(random): random.choice([word(random), random.randint(0, 999)]) for _ in range(3)}
        )
    if draw < 0.85:
        return "".join(
            chr(
                random.choice(
                    [
                        random.randint(0xC0, 0x17F),
                        random.randint(0x400, 0x44F),
                        random.randint(0x4E00, 0x9FA5),
                        random.randint(0x1F300, 0x1F64F),
                    ]
                )
            )
            for _ in range(random.randint(1, 12))
        )
    return str(random.randint(0, 10 ** random.randint(1, 9)))


def unknown_prompt(random: Random) -> str:
    """Something that a user might ask and that the demo model cannot answer."""
    draw = random.random()
    if draw < 0.66:
        text = fill(random, random.choice(FRAMES))
    elif draw < 0.76:
        text = fill(random, random.choice(CODE))
    elif draw < 0.82:
        text = random.choice(FOREIGN)
    elif draw < 0.87:
        text = noise(random)
    elif draw < 0.93:
        text = " ".join(word(random) for _ in range(random.randint(1, 9)))
    else:
        text = prose(random, random.choice([2, 2, 3, 3, 5, 5, 12, 12, 50]))
        if random.random() < 0.5:
            text = fill(random, random.choice(FRAMES)) + random.choice(["\n\n", " ", "\n"]) + text
    if random.random() < 0.12:
        text = (
            random.choice(
                ["Hello, ", "Hi, ", "Hi! ", "Hey, ", "Please: ", "Quick question: ", "OK, ", "Thanks. "]
            )
            + text
        )
    return text if random.random() < 0.95 else text + " " + fill(random, random.choice(FRAMES))


def prose(random: Random, sentences: int) -> str:
    """A paragraph or several."""
    text = sentence(random)
    for _ in range(sentences - 1):
        text += random.choice([" ", " ", " ", "\n", "\n\n"]) + sentence(random)
    return text


def system_prompt(random: Random) -> str:
    """Instructions of any length, most of them short."""
    draw = random.random()
    if draw < 0.5:
        return fill(random, random.choice(ROLES))
    if draw < 0.9:
        return " ".join(fill(random, random.choice(ROLES)) for _ in range(random.randint(2, 5)))
    return fill(random, random.choice(ROLES)) + "\n\n" + prose(random, random.choice([3, 6, 12, 20, 60]))
