"""Tiny real vision models: mlx-vlm's own architectures with random weights.

They resemble those of `tiny_models.py`: the same tokenizer with placeholder tokens of images added, the same
template with tools, and weights scaled so that answers are varied noise that depends on every image. Special
tokens are never the most likely, so greedy answers run to `max_tokens`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.tests.support.models.tiny_hearing_kinds import HEARING_KINDS
from greenroom.tests.support.models.tiny_models import CHAT_TEMPLATE, TOKENIZER
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS, VisionKind

TinyVisionModel = Callable[..., Path]
"""Function that returns the folder of the tiny model of a kind, made once per test session."""

_MARK = re.compile(r"<[^<>]+>")
_TIED = ("gemma3", "gemma4")
"""Kinds whose embeddings are tied by mlx-vlm; large ones would make models repeat the input token."""

_PEAKED = ("k_norm.weight",)
"""Norms to scale too. Otherwise attention over a thousand tokens would average out the image."""

_NOISE = 0.3
"""Spread of weights that an architecture initialises to a constant."""

_BODY = """\
{%- macro body(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content or [] %}\
{% if part.type == 'image' %}MARK{% elif part.type == 'audio' %}HEARD{% elif part.type == 'text' %}\
{{ part.text }}{% endif %}\
{% endfor %}{% endif %}{% endmacro -%}
"""


def make_tiny_vision_model(kind: str, folder: Path, *, wide: bool = False, **changes: Any) -> Path:
    """Make a model of one kind in `folder`.

    Args:
        wide: True to make large images take 1,000 or more tokens for any kind.
        changes: Fields of config.json to override.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {**VISION_KINDS, **HEARING_KINDS}[kind]
    differing = parts.wide if wide else {}
    ids = _write_tokenizer(folder, parts)
    token_fields = {field: ids[token] for field, token in parts.token_fields.items()}
    common = {"vocab_size": len(ids), "pad_token_id": 0, "eos_token_id": 2}
    config = {**parts.config, **differing.get("config", {}), **token_fields, **common, **changes}
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "vocab_size": len(ids)}
    processor = {**parts.processor, **differing.get("processor", {})}
    preprocessor = {**parts.preprocessor, **differing.get("preprocessor", {})}
    preprocessor["processor_class"] = processor["processor_class"]
    files = {
        "config": config,
        "processor_config": processor,
        "preprocessor_config": preprocessor,
        "generation_config": {"eos_token_id": 2},
    }
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1))
    _write_weights(folder, config, ids)
    return folder


def _write_tokenizer(folder: Path, parts: VisionKind) -> dict[str, int]:
    """Write the text models' tokenizer with a kind's placeholder tokens added; return its vocabulary."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.add_special_tokens(list(parts.marks))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template(parts.mark, parts.heard),
        "model_max_length": 32768,
        **parts.tokenizer,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return dict(tokenizer.get_vocab(with_added_tokens=True))


def chat_template(mark: str, heard: str = "") -> str:
    """Return the text models' template, extended to content parts and image placeholders."""
    template = CHAT_TEMPLATE.replace("{{ message.content or '' }}", "{{ body(message.content) }}")
    template = template.replace("{{ message.content }}", "{{ body(message.content) }}")
    template = template.replace("{{ messages[0].content }}", "{{ body(messages[0].content) }}")
    return _BODY.replace("MARK", mark).replace("HEARD", heard) + template


def _write_weights(folder: Path, config: Mapping[str, Any], ids: Mapping[str, int]) -> None:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    import mlx.core as mx
    from mlx.utils import tree_flatten

    weights = dict(tree_flatten(new_model(config).parameters()))
    tied = config["model_type"] in _TIED
    for name, value in weights.items():
        if value.ndim >= 2 and mx.all(value == value.flatten()[0]).item():
            weights[name] = mx.random.normal(value.shape, value.dtype, scale=_NOISE)
        elif value.ndim >= 2 or name.endswith(_PEAKED):
            weights[name] = value * (0.2 if tied and name.endswith("embed_tokens.weight") else 3)
        elif mx.abs(value).max().item() == 0:
            weights[name] = mx.random.normal(value.shape, value.dtype, scale=_NOISE)
    output = next(
        name for name in weights if name.endswith("embed_tokens.weight" if tied else "lm_head.weight")
    )
    reserved = mx.array([number for token, number in ids.items() if _MARK.fullmatch(token)])
    weights[output][reserved] = 0
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def new_model(config: Mapping[str, Any]) -> Any:
    """Return an mlx-vlm model with random weights."""
    import copy

    import mlx.core as mx
    from mlx_vlm.utils import get_model_and_args, update_module_configs

    fields = copy.deepcopy(dict(config))
    architecture, _ = get_model_and_args(fields)
    for part in ("text_config", "vision_config", "audio_config"):
        fields.setdefault(part, {})
    parsed = architecture.ModelConfig.from_dict(fields)
    modules = ["text", "vision", "perceiver", "projector", "audio"]
    mx.random.seed(0)
    parsed = update_module_configs(parsed, architecture, fields, modules)  # type: ignore[no-untyped-call]
    return architecture.Model(parsed)
