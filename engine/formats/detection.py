"""Detection of a chat template's parsers by the markers in it.

Templates without markers of our own parsers are left to mlx-lm's inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from greenroom.engine.formats.registry import FORMATS, TOOL_PARSERS, make_tool_parser
from greenroom.engine.parsers.reasoning.reasoning_markers import REASONING_MARKERS


def detect_tool_parser(template: str, vocabulary: Mapping[str, int] = MappingProxyType({})) -> str | None:
    """Return the id of the tool-call parser that a template's markers suggest.

    Imports mlx-lm if the template has no marker of our own parsers.

    Args:
        template: Source of the chat template.
        vocabulary: Token ids by token; some models name their markers only there.
    """
    return (
        described_tool_parser(template)
        or _inferred_by_mlx_lm(_TokenizerStandIn(template))
        or _shown_in(template, distinctive=False)
        or _inferred_by_mlx_lm(_TokenizerStandIn(None, vocabulary))
    )


def described_tool_parser(text: str) -> str | None:
    """Return the id of the tool-call parser whose distinctive markers a text contains, if there is one."""
    return _shown_in(text, distinctive=True)


def _shown_in(text: str, distinctive: bool) -> str | None:
    for known in FORMATS:
        for words in known.templates:
            if words.distinctive is distinctive and words.are_in(text):
                return known.parser_id
    return None


def detect_reasoning_parser(
    template: str, vocabulary: Mapping[str, int] = MappingProxyType({})
) -> str | None:
    """Return the id of the reasoning parser that a template suggests; `Args` as in `detect_tool_parser`."""
    for parser_id, shown in _SHOWN_REASONING:
        if all(text in template for text in shown):
            return parser_id
    if not vocabulary:
        return None
    from mlx_lm.tokenizer_utils import _infer_thinking

    start, end, *_ = _infer_thinking(_TokenizerStandIn(None, vocabulary))
    known = {markers: parser_id for parser_id, markers in REASONING_MARKERS.items()}
    return {**known, ("<think>", "</think>"): "think_tag"}.get((start, end))


# Templates that open the reasoning in the prompt may contain the end marker only.
_SHOWN_REASONING: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("solar_open", ("<|think|>", "<|tool_call:name|>")),
    ("hunyuan_v3", ("</think:opensource>",)),
    ("hunyuan", ("</think>", "<answer>")),
    ("muse", ("<atem:function_calls>", "<|message|>")),
    ("granite33", ("</think>", "<response>", "<|start_of_role|>")),
    ("ernie45", ("</think>", "<response>")),
    ("apertus", ("<|inner_prefix|>",)),
    ("harmony", ("<|channel|>analysis",)),
    ("muse", ("to=self<|message|>",)),
    *((parser_id, (end,)) for parser_id, (_, end) in REASONING_MARKERS.items() if "mlx_lm." not in parser_id),
    ("think_tag", ("</think>",)),
    *((parser_id, (end,)) for parser_id, (_, end) in REASONING_MARKERS.items() if "mlx_lm." in parser_id),
)


@attrs.frozen
class _TokenizerStandIn:
    """The tokenizer attributes that mlx-lm's inference reads."""

    chat_template: str | None
    vocabulary: Mapping[str, int] = MappingProxyType({})

    def get_vocab(self) -> Mapping[str, int]:
        return self.vocabulary

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return []


def _inferred_by_mlx_lm(tokenizer: _TokenizerStandIn) -> str | None:
    from mlx_lm.tokenizer_utils import _infer_tool_parser

    parser_id = f"mlx_lm.{_infer_tool_parser(tokenizer)}"
    return make_tool_parser(parser_id).parser_id if parser_id in TOOL_PARSERS else None
