"""How large a constraint may be: what one request may cost everybody else."""

from __future__ import annotations

from typing import Any, Final

MAX_NODES: Final = 10_000
"""Subschemas in all schemas of a request together; so for the next three."""

MAX_VALUES: Final = 20_000
"""Values in all `enum` and `const`, those inside them included."""

MAX_CHARACTERS: Final = 2_000_000
"""Characters of names, references, patterns and listed strings."""

MAX_STEPS: Final = 200_000
"""Steps that llguidance would take: a subschema built, intersected, copied or compared is one each."""

MAX_PROPERTIES: Final = 500
"""Properties of one object, merged with those that `allOf` adds: llguidance recurses along them, and
optional ones cost their number squared."""

MAX_ITEMS_IN_ROW: Final = 2_500
"""llguidance's items at one place of a text: 4 for each property that may come first there, so that an object
with all it may have takes 2,300; an ambiguous grammar reaches any number."""

MAX_PATTERN_PROPERTIES: Final = 32
"""Patterns of one object: each is compared with each other."""

MAX_DEPTH: Final = 60
"""Levels of one schema; llguidance gives up at 61 objects in one another."""

MAX_PATH: Final = 500
"""Levels on one path through references, rules and terminals, along which llguidance recurses natively:
a level of a schema takes some 5 kB of stack, a rule 3 kB, and the threads that compile have 32 MB."""

MAX_COUNT: Final = 100_000
"""Largest minLength, maxItems and the like."""

MAX_EXACT_INTEGER: Final = 2**53
"""Integers beyond it are not exact as floats, in which llguidance and most clients hold them."""

MAX_MULTIPLE: Final = 100_000
"""Largest `multipleOf`, in units of its last digit and without the zeros at its end: an automaton has as
many states."""

MAX_DECIMALS: Final = 8
"""Digits of `multipleOf` after the point; llguidance computes with 32 bits."""

MAX_PATTERN: Final = 4_096
"""Characters of one regular expression."""

MAX_INTERSECTED: Final = 12
"""Expressions of which one text must match all: a derivative of an intersection has as many branches as
the product of theirs."""

MAX_BRANCHES: Final = 200_000
"""Product of the classes (`.`, `[…]`, `\\w`) in expressions that are intersected; see above."""

MAX_GRAMMAR: Final = 262_144
"""Characters of a Lark grammar, or of all choices together."""

MAX_ESCAPED_GRAMMAR: Final = 4 * MAX_GRAMMAR
"""Characters of a grammar that is rewritten to stand inside a JSON string."""

MAX_ESCAPED_CLASSES: Final = 4_096
"""Classes of characters in such a grammar; one that is not known yet takes a millisecond."""


GRAMMAR_FUEL: Final = 400_000
"""What llguidance may spend on the lexer of a grammar that a client wrote; up to 3 s a million."""

SCHEMA_FUEL: Final = 1_000_000
"""The same where we wrote the grammar: 500 properties that are integers take 784,000, in 0.8 s."""


def parser_limits(lexer_fuel: int = SCHEMA_FUEL) -> Any:
    """Return llguidance's own limits: no mask takes longer than they let it, whatever the grammar.

    That is milliseconds, or a quarter of a second where a grammar is ambiguous: see `pace`.
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
