"""Tiny real embedding and rerank models: mlx-vlm's architectures with random weights.

Folders are laid out as sentence-transformers writes them. Vectors are noise, but varied noise: weights are
scaled by 3, so that a wrong row does not resemble its neighbors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.tests.support.models.tiny_encoder_tokenizers import byte_pairs, sentence_pieces, word_pieces
from greenroom.tests.support.models.tiny_sentence_files import sentence_files

TinyEncoder = Callable[..., Path]
"""`tiny_encoder(kind, **changes)`: folder of the tiny model of a kind, made once per test session."""

_COMMON: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
}
_DECODER: Mapping[str, Any] = {
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "bert": {
        "architectures": ["BertModel"],
        "max_position_embeddings": 128,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    },
    "xlm-roberta": {
        "architectures": ["XLMRobertaModel"],
        "max_position_embeddings": 130,  # positions begin at 2
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    "modernbert": {
        "architectures": ["ModernBertModel"],
        "max_position_embeddings": 512,
        "norm_eps": 1e-5,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
    },
    "qwen3": {**_DECODER, "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True},
    "gemma3_text": {
        **_DECODER,
        "architectures": ["Gemma3TextModel"],
        "sliding_window": 32,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 32,
        "rope_local_base_freq": 10000.0,
        "use_bidirectional_attention": True,
    },
}
"""config.json by kind; `KIND-rerank` is the rerank model of the same architecture."""

ENCODERS = tuple(CONFIGS)
RERANKERS = ("bert-rerank", "xlm-roberta-rerank", "modernbert-rerank", "qwen3-rerank")
"""Three cross-encoders, and a decoder that scores by its `yes` and `no` logits."""

_CLASSIFIERS = {
    "bert": "BertForSequenceClassification",
    "xlm-roberta": "XLMRobertaForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification",
}

_RERANK_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_encoder(kind: str, folder: Path, **changes: Any) -> Path:
    """Make a model in `folder`, for embeddings with the files of sentence-transformers.

    Args:
        kind: One of `ENCODERS` or `RERANKERS`.
        changes: Fields of config.json to override.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base, ranks = kind.removesuffix("-rerank"), kind.endswith("-rerank")
    _write_tokenizer(folder, base, ranks)
    config = {"model_type": base, **_COMMON, **CONFIGS[base]}
    if ranks and base in _CLASSIFIERS:
        config |= {"architectures": [_CLASSIFIERS[base]], "num_labels": 1, "id2label": {"0": "LABEL_0"}}
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    config |= {"vocab_size": len(vocabulary), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    _write_weights(folder, config, ranks)
    if not ranks:
        sentence_files(folder, base, config["hidden_size"])
    return folder


def _write_tokenizer(folder: Path, base: str, ranks: bool) -> None:
    match base:
        case "bert" | "modernbert":
            tokenizer, config = word_pieces(token_types=base == "bert")
        case "xlm-roberta":
            tokenizer, config = sentence_pieces()
        case "gemma3_text":
            tokenizer, config = byte_pairs(("<|im_start|>", "<|im_end|>"))
        case _:
            tokenizer, config = byte_pairs(() if ranks else ("<|endoftext|>",))
    if ranks and base == "qwen3":
        config = {**config, "chat_template": _RERANK_TEMPLATE}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _write_weights(folder: Path, config: Mapping[str, Any], ranks: bool) -> None:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_vlm.embedding_loader import EMBEDDING_MODEL_REMAPPING
    from mlx_vlm.utils import get_model_and_args

    base = str(config["model_type"])
    decides = ranks and base not in _CLASSIFIERS
    renamed = base if decides else EMBEDDING_MODEL_REMAPPING.get(base, base)
    module, _ = get_model_and_args({**config, "model_type": renamed})
    model_class = module.SequenceClassificationModel if ranks and not decides else module.Model
    mx.random.seed(0)
    model = model_class(module.ModelConfig.from_dict(dict(config)))
    weights = {}
    for name, value in tree_flatten(model.parameters()):
        if not name.startswith("dense."):  # dense layers have folders of their own
            name = name.removeprefix("language_model.") if decides else name.removeprefix("model.")
            weights[name] = value * 3 if value.ndim == 2 else value
    if base == "bert" and not ranks:  # real folders have this unused weight too
        size = int(config["hidden_size"])
        weights |= {"pooler.dense.weight": mx.zeros((size, size)), "pooler.dense.bias": mx.zeros((size,))}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
