from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.masks import TokenMask
from greenroom.engine.grammar.matcher import Matcher, apply_masks, compute_masks
from greenroom.tests.support.grammars.grammar_walks import Grammars
from greenroom.tests.support.grammars.json_schemas import LONG_ARRAY
from greenroom.tests.support.models.large_vocabulary import large_tokenizer


def step_seconds(model: Any, width: int, matcher: Matcher | None, steps: int) -> float:
    """Return the median seconds of a greedy step of eight sequences, of which one may be constrained."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    tokens: Any = mx.argmax(model(mx.random.randint(0, width, (8, 16)), cache=cache)[:, -1], axis=-1)
    mx.eval(tokens)
    spent = []
    for _ in range(steps):
        began = time.perf_counter()
        logits = model(tokens[:, None], cache=cache)[:, -1]
        mx.async_eval(logits)
        if matcher is not None:
            masks = {
                row: mask for row, mask in compute_masks({3: matcher}).items() if isinstance(mask, TokenMask)
            }
            logits = apply_masks(logits, masks)
        tokens = mx.argmax(logits, axis=-1)
        mx.eval(tokens)
        if matcher is not None:
            matcher.accept_token(int(tokens.tolist()[3]))
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


@pytest.mark.soak
@pytest.mark.parametrize(("vocabulary", "steps"), [(2_048, 150), (152_000, 30)])
def test_one_constrained_sequence_costs_little_of_a_step_at_batch_8(
    grammars: Grammars, tiny_model: Callable[..., Path], vocabulary: int, steps: int
) -> None:
    from mlx_lm.utils import load_model

    large = vocabulary > 2_048
    tokenizer = large_tokenizer(vocabulary) if large else Tokenizer.from_str(grammars.backend)
    known = GrammarTokenizer(tokenizer, [2])
    compiler = GrammarCompiler(known, CALL_SYNTAXES)
    model, _ = load_model(tiny_model("qwen3", vocab_size=vocabulary))
    ratios = []
    for _ in range(7):
        bare = step_seconds(model, vocabulary, None, steps)
        ratios.append(step_seconds(model, vocabulary, compiler.compile(LONG_ARRAY), steps) / bare)
    assert statistics.median(ratios) <= 1.15, ratios
