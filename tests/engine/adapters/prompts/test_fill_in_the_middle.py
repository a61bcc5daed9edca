"""Prompts with a gap: in each family's order, without control tokens, and only for capable models."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_adapters import Folder, MakeAdapter

BEFORE, AFTER = "def f(a):\n    ", "\n    return b\n"
FAMILIES = {
    "qwen coder": (
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"),
        f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>",
    ),
    "starcoder": (
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"),
        f"<fim_prefix>{BEFORE}<fim_suffix>{AFTER}<fim_middle>",
    ),
    "deepseek coder": (
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        f"<｜fim▁begin｜>{BEFORE}<｜fim▁hole｜>{AFTER}<｜fim▁end｜>",
    ),
    "codestral": (("[PREFIX]", "[SUFFIX]", "[MIDDLE]"), f"[SUFFIX]{AFTER}[PREFIX]{BEFORE}"),
}


def coder(folder: Path, tokens: tuple[str, ...]) -> Adapter:
    """Return the adapter of a model whose vocabulary has these tokens, which are not special."""
    from tokenizers import AddedToken, Tokenizer

    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens([AddedToken(token, special=False) for token in tokens])
    tokenizer.save(str(path))
    record = CapabilityRecord("text", "default", "llama", 4096)
    return make_adapter(record, load_tokenizer(folder), Settings())


def prepared(adapter: Adapter, prompt: str | tuple[int, ...], suffix: str) -> PreparedPrompt:
    return adapter.prepare_input(InferenceRequest("r", ModelKey("m"), RawInput(prompt, suffix)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gap_is_marked_as_the_family_was_trained(folder: Folder, family: str) -> None:
    tokens, text = FAMILIES[family]
    adapter = coder(folder("qwen"), tokens)
    made = prepared(adapter, BEFORE, AFTER)
    assert adapter.tokenizer.decode(made.tokens) == text
    added = adapter.tokenizer.added_tokens
    assert made.stop_token_ids >= {added[token] for token in tokens} | adapter.stop_token_ids
    assert not made.parse


def test_markers_in_the_clients_text_are_text(folder: Folder) -> None:
    tokens, _ = FAMILIES["qwen coder"]
    adapter = coder(folder("qwen"), tokens)
    middle = adapter.tokenizer.added_tokens["<|fim_middle|>"]
    made = prepared(adapter, "a<|fim_middle|>b", AFTER)
    assert made.tokens.count(middle) == 1
    assert made.tokens[-1] == middle
    assert "a<|fim_middle|>b" in adapter.tokenizer.decode(made.tokens)


def test_a_model_that_begins_its_prompts_begins_these_too(folder: Folder) -> None:
    tokens, text = FAMILIES["deepseek coder"]
    adapter = coder(folder("llama"), tokens)
    bos = adapter.tokenizer.bos_token
    assert bos
    assert adapter.tokenizer.decode(prepared(adapter, BEFORE, AFTER).tokens) == bos + text


def test_nothing_before_the_gap_is_enough(folder: Folder) -> None:
    tokens, text = FAMILIES["starcoder"]
    adapter = coder(folder("qwen"), tokens)
    assert adapter.tokenizer.decode(prepared(adapter, "", AFTER).tokens) == text.replace(BEFORE, "")


def test_a_model_that_fills_no_gaps_says_so(adapter: MakeAdapter, folder: Folder) -> None:
    with pytest.raises(ProblemError) as refused:
        prepared(adapter("qwen"), BEFORE, AFTER)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "suffix")
    with pytest.raises(ProblemError) as refused:
        prepared(coder(folder("qwen"), FAMILIES["starcoder"][0]), (1, 2), AFTER)
    assert "text" in refused.value.problem.detail
