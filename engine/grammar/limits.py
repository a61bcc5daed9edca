"""Size limits of constraints, which bound the cost of one request to all others."""

from __future__ import annotations

from typing import Any, Final, Literal

from greenroom.schemas.problems import invalid

MAX_NODES: Final = 10_000
"""Limit on the subschemas in all schemas of a request together; the next three limits are totals too."""

MAX_VALUES: Final = 20_000  # Limit on the values in all `enum` and `const`, nested ones included

MAX_CHARACTERS: Final = 2_000_000  # Limit on the characters of names, references, patterns and listed strings

MAX_STEPS: Final = 200_000
"""Limit on llguidance's steps: each subschema built, intersected, copied or compared is one."""

MAX_PROPERTIES: Final = 500
"""Limit on one object's properties, merged with those that `allOf` adds.

llguidance recurses along them, and optional ones take quadratic time.
"""

MAX_ITEMS_IN_ROW: Final = 2_500
"""Limit on llguidance's items at one position of the text.

Each property that may come first takes 4, so an object with the most properties takes 2,300; an ambiguous
grammar may reach any number.
"""

MAX_PATTERN_PROPERTIES: Final = 32  # Limit on the patterns of one object, which are compared in pairs

MAX_DEPTH: Final = 60  # Limit on the levels of one schema; llguidance fails at 61 nested objects

MAX_PATH: Final = 500
"""Limit on the levels of a path through references, rules and terminals; llguidance recurses along it.

A schema level takes about 5 kB of native stack, a rule 3 kB; the compiling threads have 32 MB.
"""

MAX_COUNT: Final = 100_000  # Largest minLength, maxItems and similar counts

MAX_EXACT_INTEGER: Final = 2**53
"""Largest magnitude of an integer that is exact as a float; llguidance and most clients use floats."""

MAX_INTEGER: Final = 9 * 10**18
"""Largest magnitude of integers without bounds, exact as a float, so that every client can read them."""

MAX_MULTIPLE: Final = 100_000
"""Largest `multipleOf`, in units of its last non-zero digit; the automaton has as many states."""

MAX_DECIMALS: Final = 8  # Limit on the decimals of `multipleOf`; llguidance computes with 32 bits

MAX_PATTERN: Final = 4_096  # Limit on the characters of one regular expression

MAX_INTERSECTED: Final = 12
"""Limit on the number of expressions that a text must match at once.

The branches of their intersection's (Brzozowski) derivative are the product of the expressions' branches.
"""

MAX_BRANCHES: Final = 200_000
"""Limit on the product of class counts (`.`, `[…]`, `\\w`) in the expressions that a text must
match at once (`MAX_INTERSECTED`)."""

MAX_GRAMMAR: Final = 262_144  # Limit on the characters of a Lark grammar, or of all choices together

MAX_ESCAPED_GRAMMAR: Final = 4 * MAX_GRAMMAR
"""Limit on the characters of a grammar rewritten for the inside of a JSON string."""

MAX_ESCAPED_CLASSES: Final = 4_096
"""Limit on the character classes in a grammar rewritten for JSON strings; one takes up to a millisecond."""

MAX_GRAMMAR_TEXT: Final = 64_000_000
"""Limit on the characters of llguidance's input, which repeats definitions."""

GRAMMAR_FUEL: Final = 400_000
"""Limit on llguidance's lexer fuel for a client's grammar; a million takes up to 3 s."""

SCHEMA_FUEL: Final = 1_000_000
"""Limit on the lexer fuel for our own grammars; 500 integer properties take 784,000, in 0.8 s."""


def parser_limits(lexer_fuel: int = SCHEMA_FUEL) -> Any:
    """Return llguidance's own limits, which bound the time of a mask for any grammar.

    A mask takes milliseconds, or a quarter of a second if the grammar is ambiguous; see `mask_latency`.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=lexer_fuel,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_items_in_row=MAX_ITEMS_IN_ROW,
        max_lexer_states=50_000,
        max_grammar_size=150_000,
        verbose_errors=False,
    )


Resource = Literal["subschemas", "listed values", "characters", "steps of work"]

_TOTALS: Final[dict[Resource, int]] = {
    "subschemas": MAX_NODES,
    "listed values": MAX_VALUES,
    "characters": MAX_CHARACTERS,
    "steps of work": MAX_STEPS,
}


class ConstraintBudget:
    """Remaining resources of one request, shared by all its schemas."""

    def __init__(self) -> None:
        self._left = dict(_TOTALS)

    def spend(self, resource: Resource, amount: int, param: object) -> None:
        """Charge an amount of a resource. `amount`: amount to charge; it is charged before the work begins,
        so it may far exceed the rest. Raises ProblemError: 400 if the budget is exceeded.
        """
        self._left[resource] -= amount
        if self._left[resource] < 0:
            total = f"{_TOTALS[resource]:,} {resource}"
            detail = (
                f"{param} is too large: a request's schemas and grammars may take at most {total} together"
            )
            raise invalid(detail, str(param), "schema_too_large")
