"""Text that a detokenizer held back before a control token is read once, by every kind of tokenizer."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall, Release
from greenroom.engine.parsers.stream_processor import Delta, StreamProcessor
from greenroom.engine.text.sequence_outputs import AnswerText
from greenroom.engine.tokenizer.detokenizer import BoundedDetokenizer
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.messages import ControlToken
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.model_outputs import ParsedAnswer, collect_answer
from greenroom.tests.support.parsers.tool_call_examples import TOOLS

MARKERS = {
    "glm4_native": ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "qwen3_coder": ("<tool_call>", "</tool_call>", "<function=", "</function>", "</parameter>"),
    "deepseek_dsml": ("｜DSML｜", "</｜DSML｜parameter>"),
    "hunyuan_v3": ("<tool_call:opensource>", "</arg_value:opensource>", "</tool_call:opensource>"),
    "seed_oss": ("<seed:tool_call>", "</seed:tool_call>", "</parameter>"),
    "mlx_lm.gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "mlx_lm.kimi_k3": ("<|open|>", "<|close|>", "<|sep|>"),
    "mlx_lm.minicpm5": ("<function", "</function>", "<param", "</param>", "<![CDATA[", "]]>"),
    "hermes_json": ("<tool_call>", "</tool_call>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
}
MENTIONED = ("<|im_start|>", "<think>", "</think>", "<tool_call>")
VALUES = [
    "Hello ",
    "x = \t",
    "a\n",
    "a \n",
    " ",
    "\t",
    "😀 ",
    "日本 ",
    "a  ",
    "cat <|im_start|> x </think> y ",
]


KINDS = ["BPE", "held", "SPM", "Naive"]
"""Byte-level, the same with a detokenizer that holds back spaces, of SentencePiece, and any other kind."""


@functools.cache
def tokenizer_with(kind: str, added: tuple[str, ...]) -> ChatTokenizer:
    """Return a tokenizer of single characters or bytes and of added tokens."""
    from mlx_lm import tokenizer_utils
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["▁", *map(chr, range(33, 127)), *map("<0x{:02X}>".format, range(256))]
    if kind == "SPM":
        fast = Tokenizer(models.BPE({word: at for at, word in enumerate(pieces)}, [], byte_fallback=True))
        fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        fast.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    else:
        fast = Tokenizer(models.BPE({word: at for at, word in enumerate(alphabet)}, []))
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        fast.decoder = decoders.ByteLevel()
    fast.add_tokens([AddedToken(name, special=False, normalized=False) for name in added])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, clean_up_tokenization_spaces=False)
    detokenizer = getattr(tokenizer_utils, f"{'BPE' if kind == 'held' else kind}StreamingDetokenizer")
    return ChatTokenizer(tokenizer_utils.TokenizerWrapper(tokenizer, detokenizer), Path())


def read(kind: str, markers: Sequence[str], text: str, processor: StreamProcessor) -> ParsedAnswer:
    """Tokenize a text with the markers as tokens, and pass it through detokenizer and parsers."""
    tokenizer = tokenizer_with(kind, tuple(dict.fromkeys((*markers, *MENTIONED))))
    controls = {ident: ControlToken(name, False) for name, ident in tokenizer.added_tokens.items()}
    held = BoundedDetokenizer(tokenizer.wrapped.detokenizer)
    answer = AnswerText(held if kind == "held" else tokenizer.new_detokenizer(), processor, controls)
    tokens = tokenizer.wrapped.encode(text, add_special_tokens=False)
    events = [event for token in tokens for event in answer.add_token(token)]
    events += answer.end("stop", ended_by_model=True)[0]
    return collect_answer(event for event in events if isinstance(event, Delta))


def new_processor(
    tool_format: str, release: Release = "validated", thoughts: str = "null"
) -> StreamProcessor:
    prepared = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS, starts_in_reasoning=thoughts != "null")
    parsers = make_tool_parser(tool_format), make_reasoning_parser(thoughts)
    return StreamProcessor(*parsers, prepared, lambda: "id", release=release)


@pytest.mark.parametrize("release", ["validated", "immediate"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool_format", MARKERS)
def test_an_argument_keeps_the_white_space_before_a_token(
    tool_format: str, kind: str, release: Release
) -> None:
    for value in VALUES:
        arguments = json.dumps({"city": value}, ensure_ascii=False)
        text = make_tool_parser(tool_format).render_all([ParsedCall("get_weather", arguments)])
        assert text is not None
        answer = read(kind, MARKERS[tool_format], text, new_processor(tool_format, release))
        assert [json.loads(call.arguments) for call in answer.tool_calls] == [{"city": value}], value


@pytest.mark.parametrize("kind", KINDS)
def test_a_thought_keeps_the_white_space_before_a_token(kind: str) -> None:
    text = "I said <tool_call> and 😀 <|im_start|>\t<think> once.</think>Well."
    answer = read(kind, (), text, new_processor("hermes_json", thoughts="think_tag"))
    assert (answer.reasoning, answer.text) == (text.partition("</think>")[0], "Well.")


@pytest.mark.parametrize("kind", ["BPE", "SPM", "Naive"])
def test_every_byte_of_an_answer_is_shown_and_padding_is_nothing(kind: str) -> None:
    tokenizer = tokenizer_with(kind, ("<b>",))
    text = "  a\0b é日😀<b>\n "
    tokens = tokenizer.wrapped.encode(text, add_special_tokens=False)
    pads = [len(tokenizer.wrapped), 10**6]
    for preceding in ((), tokens[2:4]):
        detokenizer = tokenizer.new_detokenizer(preceding)
        shown = ""
        for token in [*pads, *tokens[:5], *pads, *tokens[5:], *pads]:
            detokenizer.add_token(token)
            shown += detokenizer.last_segment
        detokenizer.finalize()
        own_space = kind == "SPM" and not preceding
        assert shown + detokenizer.last_segment == (text[1:] if own_space else text)
