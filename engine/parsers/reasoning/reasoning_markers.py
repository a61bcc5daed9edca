"""Markers around the reasoning of each model family."""

from __future__ import annotations

from greenroom.engine.parsers.reasoning.think_tag import MarkedReasoningParser

REASONING_MARKERS = {
    "think_brackets": ("[THINK]", "[/THINK]"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "kimi_vl": ("◁think▷", "◁/think▷"),
    "granite_words": ("Here is my thought process:", "Here is my response:"),
    "apriel": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    "cohere2": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "mlx_lm.longcat_think": ("<longcat_think>", "</longcat_think>"),
    "mlx_lm.think_start": ("<|think:start|>", "<|think:end|>"),
    "mlx_lm.channel": ("<|channel>thought", "<channel|>"),
    "mlx_lm.xtml": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
}
"""Reasoning markers by parser id.

First those of Magistral and Ministral, Seed-OSS, Kimi-VL, Granite 3.2, Apriel, Command R7B and A, and MiniMax
M3; then those that mlx-lm knows besides `<think>`, LongCat, Gemma 4 and Kimi K3 among them.
"""

COHERE_STRUCTURE = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|END_THINKING|>",
)
"""Markers around the visible answer of Cohere's models."""

_DROPPED = {
    "cohere2": COHERE_STRUCTURE,
    "apriel": ("[END FINAL RESPONSE]",),
    "mlx_lm.xtml": (
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
    ),
}

_ANSWER_STARTS = {"cohere2": ("<|START_RESPONSE|>", "<|START_TEXT|>")}

_ALSO_OPENED_BY = {"seed_oss": ("<seed:think><seed:cot_budget_reflect>",)}
"""Text that Seed-OSS's template writes at a reasoning budget of 0."""


class NamedReasoningParser(MarkedReasoningParser):
    """Parses reasoning between the markers of a model family.

    Args:
        parser_id: Key of `REASONING_MARKERS`.
    """

    def __init__(self, parser_id: str) -> None:
        start, end = REASONING_MARKERS[parser_id]
        super().__init__(parser_id, start, end, _DROPPED.get(parser_id, ()))
        self.answer_starts = _ANSWER_STARTS.get(parser_id, ())
        self.also_opened_by = _ALSO_OPENED_BY.get(parser_id, ())
