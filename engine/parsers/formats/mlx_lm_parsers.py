"""mlx-lm's own parsers, behind our contract: it knows the block's markers and content, we know streams.

Its modules are imported when a parser is made, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from greenroom.engine.parsers.block_stream import BlockParser
from greenroom.engine.parsers.json_calls import dump_json, normalize_object
from greenroom.engine.parsers.offered_tools import OfferedTools
from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.thoughts.think_tag import MarkedThinkingParser

MLX_LM_PREFIX = "mlx_lm."

EQUIVALENT_PARSERS = {
    "json_tools": "hermes_json",
    "glm47": "glm4_native",
    "laguna": "glm4_native",
    "mistral": "mistral",
    "qwen3_coder": "qwen3_coder",
}
"""mlx-lm's parsers whose format one of ours reads too."""

_BLOCK_ENDINGS = {
    "qwen3_coder": "</function>",
    "minimax_m2": "</invoke>",
    "minicpm5": "</param>",
    "muse_spark": "</atem:invoke>",
    "kimi_k2": "<|tool_call_end|>",
    "kimi_k3": "<|close|>call<|sep|>",
    "longcat": "</longcat_arg_value>",
}
"""What a whole block ends with: an end marker that follows anything else may stand inside a value."""

_THINKING_MARKERS = {
    "think": ("<think>", "</think>"),
    "longcat_think": ("<longcat_think>", "</longcat_think>"),
    "think_start": ("<|think:start|>", "<|think:end|>"),
    "channel": ("<|channel>thought", "<channel|>"),
    "xtml": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
}
"""Names of our own for the markers in `mlx_lm.tokenizer_utils._infer_thinking`."""

_XTML_STRUCTURE = (
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
)


class MlxLmToolParser(BlockParser):
    """One of `mlx_lm.tool_parsers`.

    Args:
        name: Name of the module.
    """

    def __init__(self, name: str) -> None:
        module = importlib.import_module(f"mlx_lm.tool_parsers.{name}")
        self.parser_id = MLX_LM_PREFIX + name
        self.markers = ((module.tool_call_start, module.tool_call_end),)
        self._parse: Callable[..., Any] = module.parse_tool_call
        self._block_ending = _BLOCK_ENDINGS.get(name, "")
        super().__init__()

    def parse_block(self, body: str, start: str, offered: OfferedTools) -> list[ParsedCall]:
        body = body.strip()
        try:
            parsed = self._parse(body, offered.as_openai())
            found = parsed if isinstance(parsed, list) else [parsed]
            return [ParsedCall(call["name"], _arguments(call.get("arguments"))) for call in found]
        except Exception as error:
            # Its message may quote the model's output, which is not for the log.
            complete = body.endswith(self._block_ending)
            raise (Malformed if complete else Unclosed)(type(error).__name__) from error


class MlxLmThinkingParser(MarkedThinkingParser):
    """One pair of thinking markers that mlx-lm knows."""

    def __init__(self, name: str) -> None:
        start, end = _THINKING_MARKERS[name]
        super().__init__(MLX_LM_PREFIX + name, start, end, _XTML_STRUCTURE if name == "xtml" else ())


def tool_parser_names() -> list[str]:
    """Return modules of `mlx_lm.tool_parsers`, found without importing any."""
    spec = find_spec("mlx_lm")
    places = spec.submodule_search_locations if spec is not None else None
    files = [path for place in places or () for path in (Path(place) / "tool_parsers").glob("*.py")]
    return sorted(path.stem for path in files if path.stem != "__init__")


def thinking_markers() -> dict[str, tuple[str, str]]:
    """Return the markers by name, in the order in which mlx-lm looks for them."""
    return dict(_THINKING_MARKERS)


def _arguments(value: Any) -> str:
    if value is None or value == "":
        return "{}"
    return normalize_object(value if isinstance(value, str) else dump_json(value))
