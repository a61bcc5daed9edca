"""Tokenizers with the chat templates of `chat_templates/`, modelled on those of model families.

The templates are abridged, but keep the differences of the real ones: the order of roles, the place and form
of tools and calls, and the messages that each refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TOOL_TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")

TEMPLATES: Mapping[str, tuple[tuple[str, ...], str | None, str]] = {
    "qwen": ((*_CHATML, *_TOOL_TAGS), None, "<|im_end|>"),
    "thinking": ((*_CHATML, *_TOOL_TAGS), None, "<|im_end|>"),
    "llama": (
        (
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|eom_id|>",
        ),
        "<|begin_of_text|>",
        "<|eot_id|>",
    ),
    "mistral": (
        ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        "<s>",
        "</s>",
    ),
    "gemma": (("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), "<bos>", "<eos>"),
    "glm4": (
        (
            "<|endoftext|>",
            "[gMASK]",
            "<sop>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|observation|>",
            *_TOOL_TAGS,
        ),
        None,
        "<|endoftext|>",
    ),
    "granite": (
        ("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", *_TOOL_TAGS),
        None,
        "<|end_of_text|>",
    ),
    "liquid": (
        ("<|startoftext|>", *_CHATML, "<|tool_call_start|>", "<|tool_call_end|>", "<|tool_list_start|>"),
        "<|startoftext|>",
        "<|im_end|>",
    ),
    "deepseek": (
        (
            *("<s>", "<|User|>", "<|Assistant|>", "<|result|>", "<|end|>"),
            *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
            *("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
        ),
        "<s>",
        "<|end|>",
    ),
    "gpt_oss": (
        (
            *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|call|>", "<|return|>", "<|endoftext|>"),
        ),
        None,
        "<|return|>",
    ),
    "seed_oss": (
        (
            *("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>", "<seed:cot_budget_reflect>"),
            *("<seed:tool_call>", "</seed:tool_call>"),
        ),
        None,
        "<seed:eos>",
    ),
    "strict_system": (_CHATML, None, "<|im_end|>"),
    "parts": (_CHATML, None, "<|im_end|>"),
}
"""Control tokens, first token of a text if there is one, and end token, by name."""

_PLAIN_ADDED_TOKENS = frozenset(_TOOL_TAGS)
"""Added tokens that are not special, as in Qwen's vocabulary."""


def make_chat_tokenizer(name: str, folder: Path, *, added: tuple[str, ...] = (), **changes: object) -> Path:
    """Write a byte-level tokenizer with a template into `folder`.

    Args:
        added: Further control tokens.
        changes: Fields of tokenizer_config.json to override.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    control, bos, eos = TEMPLATES[name]
    control = (*control, *added)
    template = (Path(__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("e", "r"), ("Ġ", "a"), ("o", "n")]
    words = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({word: ident for ident, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=token not in _PLAIN_ADDED_TOKENS) for token in control])
    if bos is not None:
        ident = tokenizer.token_to_id(bos)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, ident)]
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
        **changes,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 4096}))
    return folder
