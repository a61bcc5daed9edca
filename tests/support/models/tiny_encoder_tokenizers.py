"""Untrained tokenizers of the tiny embedding and rerank models, from the tiny models' vocabulary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from greenroom.tests.support.models.tiny_models import TOKENIZER

_WORDS = 600
"""Number of tokens taken from that vocabulary besides single characters."""


def _tokens() -> list[str]:
    """Return tokens of printable ASCII, with a space before those that begin a word."""
    vocabulary = json.loads(TOKENIZER.read_text())["model"]["vocab"]
    readable = [token.replace("Ġ", " ") for token in vocabulary if token.count("Ġ") <= 1]
    return [token for token in readable if token.isascii() and token.strip().isalpha()][:_WORDS]


def _added(tokens: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "content": token,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for number, token in enumerate(tokens)
    ]


def _around(before: Sequence[str], after: Sequence[str], between: Sequence[str], ids: Any) -> dict[str, Any]:
    """Return a post-processor that adds special tokens around one text, and between two."""

    def special(tokens: Sequence[str], kind: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": token, "type_id": kind}} for token in tokens]

    def text(name: str, kind: int) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": kind}}]

    single = special(before, 0) + text("A", 0) + special(after, 0)
    second = 1 if "[SEP]" in ids else 0
    pair = [*single, *special(between, second), *text("B", second), *special(after, second)]
    names = {*before, *after, *between}
    known = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in sorted(names)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known}


def word_pieces(token_types: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tokenizer.json and tokenizer_config.json as BERT has them."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    pieces = [token.strip() if token.startswith(" ") else f"##{token}" for token in _tokens()]
    lowered = [piece.lower() for piece in pieces]
    names = [*special, *characters, *(f"##{character}" for character in characters), *lowered]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    tokenizer = {
        "version": "1.0",
        "added_tokens": _added(special),
        "normalizer": {
            "type": "BertNormalizer",
            **{"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _around(["[CLS]"], ["[SEP]"], [], vocabulary),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
        "mask_token": "[MASK]",
        "model_max_length": 128 if token_types else 512,
        "model_input_names": inputs if token_types else [inputs[0], inputs[2]],
    }
    return tokenizer, config


def sentence_pieces() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tokenizer.json and tokenizer_config.json as XLM-RoBERTa has them."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    characters = ["▁", *(chr(code) for code in range(33, 127))]
    names = dict.fromkeys([*characters, *(token.replace(" ", "▁") for token in _tokens())])
    scores = [(name, -4.0 if len(name) > 1 else -10.0) for name in names]
    pieces = [*((name, 0.0) for name in special), *scores, ("<mask>", 0.0)]
    ids = {name: number for number, (name, _) in enumerate(pieces)}
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": _added(special),
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": spaces,
        "post_processor": _around(["<s>"], ["</s>"], ["</s>"], ids),
        "decoder": spaces,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": pieces, "byte_fallback": False},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"},
        **{"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"},
        "model_max_length": 128,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    return tokenizer, config


def byte_pairs(around: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tokenizer.json and tokenizer_config.json as decoders have them.

    Args:
        around: Special token after each text, or those before and after it; empty for none.
    """
    tokenizer = json.loads(TOKENIZER.read_text())
    if around:
        ids = tokenizer["model"]["vocab"]
        tokenizer["post_processor"] = _around(around[:-1], around[-1:], [], ids)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "padding_side": "left"},
        "model_max_length": 512,
    }
    return tokenizer, config
