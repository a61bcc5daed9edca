"""Which adapter speaks for which family (document 000, section 6.3)."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter
from greenroom.engine.adapters.default import DefaultAdapter
from greenroom.engine.adapters.gemma import GemmaAdapter
from greenroom.engine.adapters.glm4 import GLM4Adapter
from greenroom.engine.adapters.granite import GraniteAdapter
from greenroom.engine.adapters.liquid import LiquidAdapter
from greenroom.engine.adapters.llama import LlamaAdapter
from greenroom.engine.adapters.mistral import MistralAdapter
from greenroom.engine.adapters.qwen import QwenAdapter
from greenroom.engine.parsers.choice import choose_thinking_parser, choose_tool_parser
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.capabilities import CapabilityRecord, Family
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings import Settings

FAMILIES: dict[Family, type[Adapter]] = {
    "qwen": QwenAdapter,
    "glm4": GLM4Adapter,
    "llama": LlamaAdapter,
    "gemma": GemmaAdapter,
    "mistral": MistralAdapter,
    "liquid": LiquidAdapter,
    "granite": GraniteAdapter,
    "default": DefaultAdapter,
}


def make_adapter(record: CapabilityRecord, tokenizer: ChatTokenizer, settings: Settings) -> Adapter:
    """The adapter of a model; one for each thread, around that thread's tokenizer.

    Parsers come from the record, else from what the template shows, else from the family.

    Raises:
        ProblemError: 503 `load_failed` if the record names a parser that does not exist.
    """
    family = FAMILIES.get(record.family, DefaultAdapter)
    template, vocabulary = tokenizer.chat_template, tokenizer.vocab.keys()
    try:
        calls = choose_tool_parser(record, template, family.default_tool_parser, vocabulary)
        thoughts = choose_thinking_parser(record, template, family.default_thinking_parser, vocabulary)
    except LookupError as error:
        detail = f"its capability record names an unknown parser ({error})"
        raise ProblemError(load_failed(tokenizer.folder.name, detail)) from error
    return family(record, tokenizer, settings, calls, thoughts)
