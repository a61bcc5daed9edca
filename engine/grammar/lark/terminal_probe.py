"""Finds out at a bounded price whether intersected terminals can be compiled.

llguidance computes the first byte of each terminal without a limit: whether anything can follow it under an
intersection or a negation may take for ever to find out (100 characters are enough). Behind a byte that
comes before them the same terminals are looked at under its limits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.vocabulary.c_interface import GrammarMatcher
from greenroom.engine.grammar.vocabulary.single_bytes import END, single_bytes
from greenroom.schemas.problems import invalid

_PREFIX = "\\u0001"


def probe_terminals(definitions: str, names: Sequence[str], param: str) -> None:
    """Refuse terminals that cannot be compiled within llguidance's limits.

    Args:
        definitions: Lark definitions of all that they refer to.
        names: The terminals, or expressions of terminals.
        param: Where the request holds them.

    Raises:
        ProblemError: 400 that names the field.
    """
    prefix = "PROBE"
    while prefix in definitions:
        prefix += "X"
    probes = [f'{prefix}-{index}: "{_PREFIX}" ({name})' for index, name in enumerate(names)]
    start = "start: " + " | ".join(f"{prefix}-{index}" for index in range(len(names)))
    lark = "\n".join([definitions, *probes, start, ""])
    grammar = json.dumps({"grammars": [{"lark_grammar": lark}]})
    allowed = limits.parser_limits(limits.GRAMMAR_FUEL)
    matcher = GrammarMatcher.compile(single_bytes(), grammar, allowed)
    if not matcher.is_error() and matcher.consume_token(1):
        matcher.compute_mask(np.zeros(-(-(END + 1) // 32), np.uint32))
    # Terminals that nothing matches are harmless, and refused when they are compiled in earnest.
    error = matcher.get_error()
    if error and not error.startswith("NoExtensionBias"):
        detail = f"What '&' and '~' combine cannot be compiled: {error.split(chr(10))[0][:300]}"
        raise invalid(detail, param, "unsupported_grammar")
