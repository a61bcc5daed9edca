"""Files that sentence-transformers writes beside a model: modules, pooling, prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt": "pooling_mode_mean_sqrt_len_tokens",
    "weighted": "pooling_mode_weightedmean_tokens",
    "last": "pooling_mode_lasttoken",
}
_FIND = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

_POOLED = {"bert": "mean", "xlm-roberta": "mean", "modernbert": "cls", "qwen3": "last", "gemma3_text": "mean"}
_PROMPTS: Mapping[str, Mapping[str, str]] = {
    "bert": {},
    "xlm-roberta": {"query": "query: ", "passage": "passage: "},
    "modernbert": {"query": "search_query: ", "document": "search_document: "},
    "qwen3": {"query": _FIND, "document": ""},
    "gemma3_text": {"query": "task: search result | query: ", "document": "title: none | text: "},
}


def sentence_files(folder: Path, kind: str, hidden: int) -> None:
    """Write the files of a real model folder.

    Args:
        hidden: Width of the token vectors.
    """
    steps = ["Pooling", "Normalize"]
    if kind == "gemma3_text":
        steps[1:1] = ["Dense", "Dense"]
        write_dense(folder / "2_Dense", hidden, 4 * hidden)
        write_dense(folder / "3_Dense", 4 * hidden, hidden)
    write_modules(folder, steps)
    write_pooling(folder, hidden, _POOLED[kind])
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 128, "do_lower_case": False})
    )
    write_prompts(folder, _PROMPTS[kind])


def write_modules(folder: Path, steps: Sequence[str]) -> None:
    """Write modules.json: the steps after the model itself, such as Pooling, Dense and Normalize."""
    names = [("", "Transformer"), *((f"{number}_{step}", step) for number, step in enumerate(steps, 1))]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{step}"}
        for number, (path, step) in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))


def write_pooling(folder: Path, hidden: int, *modes: str, include_prompt: bool = True) -> None:
    """Write pooling modes: `cls`, `mean`, `mean_sqrt`, `weighted`, `max`, `last`, or several."""
    (folder / "1_Pooling").mkdir(exist_ok=True)
    config: dict[str, Any] = {"word_embedding_dimension": hidden, "include_prompt": include_prompt}
    config |= {field: mode in modes for mode, field in _MODES.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def write_prompts(folder: Path, prompts: Mapping[str, str], default: str | None = None) -> None:
    """Write config_sentence_transformers.json."""
    versions = {"sentence_transformers": "5.1.0", "transformers": "4.57.0", "pytorch": "2.8.0"}
    config = {"__version__": versions, "prompts": dict(prompts), "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({**config, "similarity_fn_name": "cosine"})
    )


def write_dense(
    folder: Path, inputs: int, outputs: int, *, activation: str = "linear.Identity", bias: bool = False
) -> None:
    """Write a Dense module with random weights.

    Args:
        activation: Class name below `torch.nn.modules`.
    """
    import mlx.core as mx

    folder.mkdir(exist_ok=True)
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": bias,
        "activation_function": f"torch.nn.modules.{activation}",
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(inputs)
    weights = {"linear.weight": mx.random.normal((outputs, inputs), scale=inputs**-0.5)}
    if bias:
        weights["linear.bias"] = mx.random.normal((outputs,))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
