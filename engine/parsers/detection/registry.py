"""Parsers by the ids that capability records use (document 000, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from greenroom.engine.parsers.blocks.call_sections import HEADED_CALL_FORMATS, HeadedCallParser
from greenroom.engine.parsers.formats.functionary import FunctionaryV32Parser
from greenroom.engine.parsers.formats.gemma import GEMMA_CALL_FORMATS, GemmaParser
from greenroom.engine.parsers.formats.glm4 import Glm4NativeParser, Glm4XmlParser, LongcatParser
from greenroom.engine.parsers.formats.harmony import HarmonyParser, HarmonyThinkingParser
from greenroom.engine.parsers.formats.hermes import GraniteJsonParser, HermesJsonParser
from greenroom.engine.parsers.formats.hunyuan import HunyuanParser, HunyuanV3Parser
from greenroom.engine.parsers.formats.invoke_tags import (
    DeepseekDsmlParser,
    MinimaxM2Parser,
    Step3Parser,
)
from greenroom.engine.parsers.formats.json_block import JSON_BLOCK_FORMATS, JsonBlockParser
from greenroom.engine.parsers.formats.kimi_k3 import KimiK3Parser
from greenroom.engine.parsers.formats.llama import (
    BarePythonicParser,
    LlamaJsonParser,
    LlamaPythonParser,
    LlamaXmlParser,
)
from greenroom.engine.parsers.formats.marked_calls import (
    AprielParser,
    Cohere2Parser,
    CommandRParser,
    Lfm2Parser,
    MinimaxM1Parser,
    Olmo3Parser,
)
from greenroom.engine.parsers.formats.minicpm5 import Minicpm5Parser
from greenroom.engine.parsers.formats.mistral import MistralParser
from greenroom.engine.parsers.formats.muse import MuseParser, MuseThinkingParser
from greenroom.engine.parsers.formats.qwen3_coder import Qwen3CoderParser, SeedOssParser
from greenroom.engine.parsers.formats.xlam import XlamParser
from greenroom.engine.parsers.null import NullThinkingParser, NullToolParser
from greenroom.engine.parsers.thinking_parser import ThinkingParser
from greenroom.engine.parsers.thoughts.framed_answer import FramedAnswerParser
from greenroom.engine.parsers.thoughts.think_tag import (
    MarkedThinkingParser,
    SolarOpenThinkingParser,
    ThinkTagParser,
)
from greenroom.engine.parsers.thoughts.thought_markers import THOUGHT_MARKERS, NamedThinkingParser
from greenroom.engine.parsers.tool_call_parser import ToolCallParser

FURTHER_NAMES: dict[str, Callable[[], ToolCallParser]] = {
    "mlx_lm.glm47": Glm4NativeParser,
    "mlx_lm.json_tools": HermesJsonParser,
    "mlx_lm.laguna": Glm4NativeParser,
    "mlx_lm.mistral": MistralParser,
    "mlx_lm.qwen3_coder": Qwen3CoderParser,
}
"""Parsers by mlx-lm's names for formats that have ids of our own; records may use either."""

TOOL_PARSERS: dict[str, Callable[[], ToolCallParser]] = {
    "hermes_json": HermesJsonParser,
    "glm4_native": Glm4NativeParser,
    "glm4_xml": Glm4XmlParser,
    "llama_xml": LlamaXmlParser,
    "llama_python": LlamaPythonParser,
    "llama_json": LlamaJsonParser,
    "granite_json": GraniteJsonParser,
    "mistral": MistralParser,
    "qwen3_coder": Qwen3CoderParser,
    "harmony": HarmonyParser,
    "bare_pythonic": BarePythonicParser,
    "olmo3": Olmo3Parser,
    "cohere2": Cohere2Parser,
    "command_r": CommandRParser,
    "seed_oss": SeedOssParser,
    "apriel": AprielParser,
    "minimax_m1": MinimaxM1Parser,
    "deepseek_dsml": DeepseekDsmlParser,
    "step3": Step3Parser,
    "hunyuan": HunyuanParser,
    "hunyuan_v3": HunyuanV3Parser,
    "xlam": XlamParser,
    "functionary_v32": FunctionaryV32Parser,
    **{call.parser_id: partial(HeadedCallParser, call) for call in HEADED_CALL_FORMATS},
    **{block.parser_id: partial(JsonBlockParser, block) for block in JSON_BLOCK_FORMATS},
    "null": NullToolParser,
    "mlx_lm.pythonic": Lfm2Parser,
    "mlx_lm.longcat": LongcatParser,
    "mlx_lm.minicpm5": Minicpm5Parser,
    "mlx_lm.minimax_m2": MinimaxM2Parser,
    "mlx_lm.muse_spark": MuseParser,
    "mlx_lm.kimi_k3": KimiK3Parser,
    **{call.parser_id: partial(GemmaParser, call) for call in GEMMA_CALL_FORMATS},
    **FURTHER_NAMES,
}

THINKING_PARSERS: dict[str, Callable[[], ThinkingParser]] = {
    "think_tag": ThinkTagParser,
    "harmony": HarmonyThinkingParser,
    "muse": MuseThinkingParser,
    **{parser_id: partial(NamedThinkingParser, parser_id) for parser_id in THOUGHT_MARKERS},
    "hunyuan": partial(FramedAnswerParser, "hunyuan", ("<think>", "</think>"), ("<answer>", "</answer>")),
    "hunyuan_v3": partial(MarkedThinkingParser, "hunyuan_v3", "<think:opensource>", "</think:opensource>"),
    "granite33": partial(
        FramedAnswerParser, "granite33", ("<think>", "</think>"), ("<response>", "</response>")
    ),
    "ernie45": partial(FramedAnswerParser, "ernie45", ("<think>", "</think>"), ("<response>", "</response>")),
    "apertus": partial(
        MarkedThinkingParser,
        "apertus",
        "<|inner_prefix|>",
        "<|inner_suffix|>",
        ended_by=("<|tools_prefix|>",),
    ),
    "solar_open": SolarOpenThinkingParser,
    "null": NullThinkingParser,
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


def make_thinking_parser(parser_id: str) -> ThinkingParser:
    """Return a new reasoning parser with that id.

    Raises:
        LookupError: No parser has that id.
    """
    if parser_id not in THINKING_PARSERS:
        parser_ids = ", ".join(THINKING_PARSERS)
        raise LookupError(f"no thinking parser is called {parser_id!r}; there are {parser_ids}")
    return THINKING_PARSERS[parser_id]()
