"""Bounded check whether intersected terminals compile.

llguidance computes the first byte of each terminal without a limit, and under an intersection or a negation
that may take forever (100 characters are enough). With a fixed byte in front, it processes the same terminals
under its limits.
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
        definitions: Lark definitions that the terminals refer to.
        names: Terminals, or expressions of terminals.
        param: Path of the grammar in the request.

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
    # Terminals that match nothing are harmless here; the real compilation refuses them.
    error = matcher.get_error()
    if error and not error.startswith("NoExtensionBias"):
        detail = (
            f"The expressions that '&' or '~' combines cannot be compiled: {error.split(chr(10))[0][:300]}"
        )
        raise invalid(detail, param, "unsupported_grammar")
