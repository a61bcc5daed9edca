"""All formats of tool calls, and their parsers by the ids in capability records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import attrs

from greenroom.engine.formats import (
    cohere,
    functionary,
    gemma,
    glm4,
    harmony,
    headed_calls,
    hunyuan,
    invoke_tags,
    json_blocks,
    kimi_k3,
    llama,
    marked_python,
    minicpm5,
    qwen3_coder,
)
from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.grammar.call_syntax import CallSyntax
from greenroom.engine.parsers.parser import (
    NullReasoningParser,
    NullToolParser,
    ReasoningParser,
    ToolCallParser,
)
from greenroom.engine.parsers.reasoning import (
    REASONING_MARKERS,
    AnswerTagsParser,
    MarkedReasoningParser,
    NamedReasoningParser,
    SolarOpenReasoningParser,
    ThinkTagParser,
)

FORMATS: tuple[CallFormat, ...] = (
    json_blocks.HERMES,
    json_blocks.GRANITE,
    glm4.GLM4_NATIVE,
    headed_calls.MISTRAL,
    qwen3_coder.QWEN3_CODER,
    invoke_tags.DEEPSEEK_DSML,
    *headed_calls.FORMATS,
    invoke_tags.STEP3,
    *json_blocks.FORMATS,
    functionary.FUNCTIONARY_V32,
    json_blocks.XLAM,
    hunyuan.HUNYUAN,
    hunyuan.HUNYUAN_V3,
    harmony.HARMONY,
    cohere.COHERE2,
    cohere.COMMAND_R,
    qwen3_coder.SEED_OSS,
    marked_python.OLMO3,
    marked_python.LFM2,
    json_blocks.APRIEL,
    json_blocks.MINIMAX_M1,
    llama.LLAMA_XML,
    llama.LLAMA_PYTHON,
    llama.LLAMA_JSON,
    llama.BARE_PYTHONIC,
    glm4.GLM4_XML,
    glm4.LONGCAT,
    minicpm5.MINICPM5,
    invoke_tags.MINIMAX_M2,
    harmony.MUSE,
    kimi_k3.KIMI_K3,
    *gemma.FORMATS,
)
"""All formats, by precedence: if several fit a template, the first one is chosen."""

FURTHER_NAMES: Mapping[str, Callable[[], ToolCallParser]] = {
    f"mlx_lm.{name}": known.new_parser for known in FORMATS for name in known.mlx_lm_names
}
"""Parsers by mlx-lm's names for formats that have ids of our own; records may use either."""

TOOL_PARSERS: Mapping[str, Callable[[], ToolCallParser]] = {
    **{known.parser_id: known.new_parser for known in FORMATS},
    "null": NullToolParser,
    **FURTHER_NAMES,
}

CALL_SYNTAXES: Mapping[str, CallSyntax] = {
    known.parser_id: known.syntax for known in FORMATS if known.syntax is not None
}
"""Syntaxes of calls that can be constrained, by parser id."""

REASONING_PARSERS: dict[str, Callable[[], ReasoningParser]] = {
    "think_tag": ThinkTagParser,
    "harmony": harmony.HarmonyReasoningParser,
    "muse": harmony.MuseReasoningParser,
    **{parser_id: partial(NamedReasoningParser, parser_id) for parser_id in REASONING_MARKERS},
    "hunyuan": partial(AnswerTagsParser, "hunyuan", ("<think>", "</think>"), ("<answer>", "</answer>")),
    "hunyuan_v3": partial(MarkedReasoningParser, "hunyuan_v3", "<think:opensource>", "</think:opensource>"),
    "granite33": partial(
        AnswerTagsParser, "granite33", ("<think>", "</think>"), ("<response>", "</response>")
    ),
    "ernie45": partial(AnswerTagsParser, "ernie45", ("<think>", "</think>"), ("<response>", "</response>")),
    "apertus": partial(
        MarkedReasoningParser,
        "apertus",
        "<|inner_prefix|>",
        "<|inner_suffix|>",
        ended_by=("<|tools_prefix|>",),
    ),
    "solar_open": SolarOpenReasoningParser,
    "null": NullReasoningParser,
    "mlx_lm.think": partial(ThinkTagParser, "mlx_lm.think"),
}


def make_tool_parser(parser_id: str) -> ToolCallParser:
    """Return a new tool-call parser with that id. Raises LookupError: no parser has that id."""
    if parser_id not in TOOL_PARSERS:
        raise LookupError(f"no tool parser is called {parser_id!r}; there are {', '.join(TOOL_PARSERS)}")
    return TOOL_PARSERS[parser_id]()


def make_reasoning_parser(parser_id: str) -> ReasoningParser:
    """Return a new reasoning parser with that id. Raises LookupError: no parser has that id."""
    if parser_id not in REASONING_PARSERS:
        parser_ids = ", ".join(REASONING_PARSERS)
        raise LookupError(f"no reasoning parser is called {parser_id!r}; there are {parser_ids}")
    return REASONING_PARSERS[parser_id]()


# Detection of a chat template's parsers by the markers in it.
#
# Templates without markers of our own parsers are left to mlx-lm's inference.


def detect_tool_parser(template: str, vocabulary: Mapping[str, int] = MappingProxyType({})) -> str | None:
    """Return the id of the tool-call parser that a template's markers suggest.

    Imports mlx-lm if the template has no marker of our own parsers.

    Args:
        vocabulary: Token ids by token; some models name their markers only there.
    """
    return (
        described_tool_parser(template)
        or _inferred_by_mlx_lm(_TokenizerStandIn(template))
        or _shown_in(template, distinctive=False)
        or _inferred_by_mlx_lm(_TokenizerStandIn(None, vocabulary))
    )


def described_tool_parser(text: str) -> str | None:
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
