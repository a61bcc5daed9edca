"""How large a constraint may be: what one request may cost everybody else."""

from __future__ import annotations

from typing import Any, Final

MAX_NODES: Final = 10_000
"""Subschemas in one schema."""

MAX_PROPERTIES: Final = 500
"""Properties of one object: optional ones cost their number squared, and llguidance gives up soon."""

MAX_DEPTH: Final = 60
"""Levels of one schema; llguidance gives up at 61 objects in one another."""

MAX_VALUES: Final = 20_000
"""Values in all `enum` and `const` of one schema together."""

MAX_COUNT: Final = 100_000
"""Largest minLength, maxItems and the like."""

MAX_EXACT_INTEGER: Final = 2**53
"""Integers beyond it are not exact as floats, in which llguidance and most clients hold them."""

MAX_PATTERN: Final = 4_096
"""Characters of one regular expression."""

MAX_GRAMMAR: Final = 262_144
"""Characters of a Lark grammar, or of all choices together."""


def parser_limits() -> Any:
    """Return llguidance's own limits: they bound each mask to some 15 ms whatever the grammar."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_items_in_row=2_000,
        max_lexer_states=50_000,
        max_grammar_size=500_000,
        verbose_errors=False,
    )
