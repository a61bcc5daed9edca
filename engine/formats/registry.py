"""All formats of tool calls, and their parsers by the ids in capability records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from greenroom.engine.formats.description.call_format import CallFormat
from greenroom.engine.formats.json_calls import cohere, hermes, json_blocks, minimax_m1, xlam
from greenroom.engine.formats.named_calls import functionary, harmony, headed_calls, mistral
from greenroom.engine.formats.python_calls import gemma, llama, marked_python
from greenroom.engine.formats.tagged_calls import (
    glm4,
    hunyuan,
    invoke_tags,
    kimi_k3,
    minicpm5,
    muse,
    qwen3_coder,
)
from greenroom.engine.grammar.calls.call_syntax import CallSyntax
from greenroom.engine.parsers.null import NullReasoningParser, NullToolParser
from greenroom.engine.parsers.reasoning.answer_tags import AnswerTagsParser
from greenroom.engine.parsers.reasoning.reasoning_markers import REASONING_MARKERS, NamedReasoningParser
from greenroom.engine.parsers.reasoning.think_tag import (
    MarkedReasoningParser,
    SolarOpenReasoningParser,
    ThinkTagParser,
)
from greenroom.engine.parsers.reasoning_parser import ReasoningParser
from greenroom.engine.parsers.tool_call_parser import ToolCallParser

FORMATS: tuple[CallFormat, ...] = (
    hermes.HERMES,
    hermes.GRANITE,
    glm4.GLM4_NATIVE,
    mistral.MISTRAL,
    qwen3_coder.QWEN3_CODER,
    invoke_tags.DEEPSEEK_DSML,
    *headed_calls.FORMATS,
    invoke_tags.STEP3,
    *json_blocks.FORMATS,
    functionary.FUNCTIONARY_V32,
    xlam.XLAM,
    hunyuan.HUNYUAN,
    hunyuan.HUNYUAN_V3,
    harmony.HARMONY,
    cohere.COHERE2,
    cohere.COMMAND_R,
    qwen3_coder.SEED_OSS,
    marked_python.OLMO3,
    marked_python.LFM2,
    minimax_m1.APRIEL,
    minimax_m1.MINIMAX_M1,
    llama.LLAMA_XML,
    llama.LLAMA_PYTHON,
    llama.LLAMA_JSON,
    llama.BARE_PYTHONIC,
    glm4.GLM4_XML,
    glm4.LONGCAT,
    minicpm5.MINICPM5,
    invoke_tags.MINIMAX_M2,
    muse.MUSE,
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
    "muse": muse.MuseReasoningParser,
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
    """Return a new tool-call parser with that id.

    Raises:
        LookupError: No parser has that id.
    """
    if parser_id not in TOOL_PARSERS:
        raise LookupError(f"no tool parser is called {parser_id!r}; there are {', '.join(TOOL_PARSERS)}")
    return TOOL_PARSERS[parser_id]()


def make_reasoning_parser(parser_id: str) -> ReasoningParser:
    """Return a new reasoning parser with that id.

    Raises:
        LookupError: No parser has that id.
    """
    if parser_id not in REASONING_PARSERS:
        parser_ids = ", ".join(REASONING_PARSERS)
        raise LookupError(f"no reasoning parser is called {parser_id!r}; there are {parser_ids}")
    return REASONING_PARSERS[parser_id]()
