"""Every parser under the id that capability records know it by (document 000, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from greenroom.engine.parsers.call_sections import HEADED_CALL_FORMATS, HeadedCallParser
from greenroom.engine.parsers.formats import mlx_lm_parsers
from greenroom.engine.parsers.formats.functionary import FunctionaryV32Parser
from greenroom.engine.parsers.formats.glm4 import Glm4NativeParser, Glm4XmlParser
from greenroom.engine.parsers.formats.harmony import HarmonyParser, HarmonyThinkingParser
from greenroom.engine.parsers.formats.hermes import GraniteJsonParser, HermesJsonParser
from greenroom.engine.parsers.formats.hunyuan import HunyuanParser, HunyuanV3Parser
from greenroom.engine.parsers.formats.invoke_tags import DeepseekDsmlParser, Step3Parser
from greenroom.engine.parsers.formats.json_block import JSON_BLOCK_FORMATS, JsonBlockParser
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
    SeedOssParser,
)
from greenroom.engine.parsers.formats.mistral import MistralParser
from greenroom.engine.parsers.formats.qwen3_coder import Qwen3CoderParser
from greenroom.engine.parsers.formats.xlam import XlamParser
from greenroom.engine.parsers.null import NullThinkingParser, NullToolParser
from greenroom.engine.parsers.thinking_parser import ThinkingParser
from greenroom.engine.parsers.thoughts.framed_answer import FramedAnswerParser
from greenroom.engine.parsers.thoughts.think_tag import MarkedThinkingParser, ThinkTagParser
from greenroom.engine.parsers.thoughts.thought_markers import THOUGHT_MARKERS, NamedThinkingParser
from greenroom.engine.parsers.tool_call_parser import ToolCallParser

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
    **{
        mlx_lm_parsers.MLX_LM_PREFIX + name: partial(mlx_lm_parsers.MlxLmToolParser, name)
        for name in mlx_lm_parsers.tool_parser_names()
    },
    Lfm2Parser.parser_id: Lfm2Parser,
}

THINKING_PARSERS: dict[str, Callable[[], ThinkingParser]] = {
    "think_tag": ThinkTagParser,
    "harmony": HarmonyThinkingParser,
    **{parser_id: partial(NamedThinkingParser, parser_id) for parser_id in THOUGHT_MARKERS},
    "hunyuan": partial(FramedAnswerParser, "hunyuan", ("<think>", "</think>"), ("<answer>", "</answer>")),
    "hunyuan_v3": partial(MarkedThinkingParser, "hunyuan_v3", "<think:opensource>", "</think:opensource>"),
    "ernie45": partial(FramedAnswerParser, "ernie45", ("<think>", "</think>"), ("<response>", "</response>")),
    "apertus": partial(
        MarkedThinkingParser,
        "apertus",
        "<|inner_prefix|>",
        "<|inner_suffix|>",
        ended_by=("<|tools_prefix|>",),
    ),
    "null": NullThinkingParser,
    **{
        mlx_lm_parsers.MLX_LM_PREFIX + name: partial(mlx_lm_parsers.MlxLmThinkingParser, name)
        for name in mlx_lm_parsers.thinking_markers()
    },
}


def make_tool_parser(parser_id: str) -> ToolCallParser:
    """Return a new parser of that id.

    Raises:
        LookupError: No parser has that id.
    """
    if parser_id not in TOOL_PARSERS:
        raise LookupError(f"no tool parser is called {parser_id!r}; there are {', '.join(TOOL_PARSERS)}")
    return TOOL_PARSERS[parser_id]()


def make_thinking_parser(parser_id: str) -> ThinkingParser:
    """Return a new parser of that id.

    Raises:
        LookupError: No parser has that id.
    """
    if parser_id not in THINKING_PARSERS:
        parser_ids = ", ".join(THINKING_PARSERS)
        raise LookupError(f"no thinking parser is called {parser_id!r}; there are {parser_ids}")
    return THINKING_PARSERS[parser_id]()
