"""Small sums: how users ask for them, the thought that leads to the answer, the answer."""

from __future__ import annotations

from random import Random

import attrs

from .vocabulary import alternatives

QUESTIONS = alternatives("""
What is {a} + {b}?|What is {a} + {b}?|What is {a} + {b}?|What's {a} + {b}?|What is {a} plus {b}?|What's
{a} plus {b}?|{a} + {b}|{a} + {b} = ?|{a}+{b}|{a}+{b}=|{a}+{b}?|What is {a}+{b}?|Add {a} and {b}|Add {a}
and {b}.|Add {a} to {b}|How much is {a} + {b}?|How much is {a} plus {b}?|Calculate {a} + {b}|Compute {a} +
{b}|What is the sum of {a} and {b}?|Sum of {a} and {b}|Tell me what {a} + {b} is|Can you add {a} and
{b}?|Please add {a} and {b}.|What does {a} + {b} make?|What do you get when you add {a} and {b}?|{a} plus
{b}|I have {a} apples and buy {b} more. How many do I have?|Solve {a} + {b}|Hello! What is {a} + {b}?|Hi,
what is {a} plus {b}?|And {a} + {b}?
""")


@attrs.frozen
class Sum:
    """A question with its working and answer."""

    question: str
    thought: str
    answer: str


def addition(a: int, b: int, question: str) -> Sum:
    """Adds as a child does on paper: ones, tens, together. Numbers up to 99."""
    ones, tens = a % 10 + b % 10, a // 10 * 10 + b // 10 * 10
    thought = f"I add {a} and {b}. Ones: {a % 10} + {b % 10} = {ones}."
    if tens:
        thought += f" Tens: {a // 10 * 10} + {b // 10 * 10} = {tens}. Together: {tens} + {ones} = {a + b}."
    return Sum(question, thought, f"{a} + {b} = {a + b}.")


def random_sum(random: Random) -> Sum:
    """A sum of two numbers below one hundred, every digit as likely as any other."""
    top = random.choice([9, 9, 20, 99, 99, 99])
    a, b = random.randint(0, top), random.randint(0, random.choice([9, top]))
    return addition(a, b, random.choice(QUESTIONS).format(a=a, b=b))
