"""Folders of tiny models of mlx-vlm's vision architectures, made with their own configuration classes."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.libraries import library_folder
from greenroom.tests.support.architectures.vision.own_fields import VOCABULARY, OwnFields, reduce_sizes
from greenroom.tests.support.architectures.vision.vision_configs import OWN
from greenroom.tests.support.architectures.vision.vision_fields import PREPROCESSOR, ROOT, TEXT, TOWER
from greenroom.tests.support.architectures.vision.vision_weights import write_random_weights
from greenroom.tests.support.models.tiny_hearing_kinds import HEARING_KINDS
from greenroom.tests.support.models.tiny_models import TOKENIZER
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.models.tiny_vision_models import chat_template, make_tiny_vision_model

_PARTS: Mapping[str, Mapping[str, Any]] = {
    "text_config": TEXT,
    "vision_config": TOWER,
    "perceiver_config": TOWER,
    "projector_config": TOWER,
}
_TOKEN = re.compile(r"""["'](<[^<>"'{}\s]{1,40}>|\[[A-Z_]{2,20}\])["']""")
"""Pattern of the special tokens in a processor's code."""


def make_vision_folder(module: str, folder: Path) -> Path:
    """Make a folder with a tiny model of an architecture, with random weights.

    Args:
        module: Package name in mlx-vlm.

    Raises:
        Exception: Any error of its configuration or model: the architecture needs more fields.
    """
    if module in VISION_KINDS or module in HEARING_KINDS:
        return make_tiny_vision_model(module, folder)
    own = OWN.get(module, OwnFields())
    folder.mkdir(parents=True, exist_ok=True)
    ids = _write_tokenizer(module, own, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": own.model_type or module}))
    reduce_sizes(module, own.sizes)
    config = _config(module, own, ids)
    files = {
        "config": config,
        "preprocessor_config": {**PREPROCESSOR, **own.preprocessor},
        "processor_config": {**own.processor},
        "generation_config": {"eos_token_id": 2},
    }
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1))
    write_random_weights(folder, config, ids, own.scale)
    return folder


def _config(module: str, own: OwnFields, ids: Mapping[str, int]) -> dict[str, Any]:
    """Return config.json: the fields known to the architecture's classes, and its own fields."""
    code = importlib.import_module(f"mlx_vlm.models.{module}")
    size = {"vocab_size": max(ids.values()) + 1}
    root = _known(code.ModelConfig, {**TEXT, **ROOT, **size})
    for part, common in _PARTS.items():
        if part not in _fields(code.ModelConfig):
            continue
        name = f"{part.removesuffix('_config').title()}Config"
        known = _known(getattr(code, name), {**common, **size}) if hasattr(code, name) else {}
        named = {"model_type": module} if "model_type" in _required(getattr(code, name, None)) else {}
        fields = {**named, **known, **_with_ids(own.parts.get(part, {}), ids)}
        if part == "text_config" and own.flat:
            root |= fields
        else:
            root[part] = fields
    image = ids[own.mark_token]
    tokens = {name: image for name in _fields(code.ModelConfig) if name in _IMAGE_FIELDS}
    common = {"pad_token_id": 0, "eos_token_id": 2}
    return {**root, **tokens, **common, "model_type": own.model_type or module, **_with_ids(own.root, ids)}


_IMAGE_FIELDS = frozenset({"image_token_id", "image_token_index", "media_placeholder_token_id"})


def _fields(config: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(config))


def _required(config: Any) -> frozenset[str]:
    fields = dataclasses.fields(config) if config is not None else ()
    given = (dataclasses.MISSING, dataclasses.MISSING)
    return frozenset(each.name for each in fields if (each.default, each.default_factory) == given)


def _known(config: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    known = _fields(config)
    return {name: value for name, value in values.items() if name in known}


def _with_ids(fields: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """Return fields with token ids in place of `token:<text>`, and the number of tokens for `VOCABULARY`."""
    return {name: _with_id(value, ids) for name, value in fields.items()}


def _with_id(value: Any, ids: Mapping[str, int]) -> Any:
    if isinstance(value, dict):
        return _with_ids(value, ids)
    if value == VOCABULARY:
        return max(ids.values()) + 1
    if isinstance(value, str) and value.startswith("token:"):
        return ids[value.removeprefix("token:")]
    return value


def _filled(vocabulary: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
    """Return tokens with fixed ids, and tokens that no text has for the ids below them."""
    free = range(len(vocabulary), max(ids.values(), default=0))
    return {**{f"unused{number}": number for number in free if number not in ids.values()}, **ids}


def _write_tokenizer(module: str, own: OwnFields, folder: Path) -> dict[str, int]:
    """Write the text models' tokenizer, extended by the tokens in a package's code; return its vocabulary."""
    from tokenizers import Tokenizer

    package = Path(str(library_folder("mlx_vlm")), "models", module)
    sources = [path.read_text() for path in sorted(package.glob("*.py"))]
    named = dict.fromkeys(token for source in sources for token in _TOKEN.findall(source))
    described = json.loads(TOKENIZER.read_text())
    described["model"]["vocab"] |= _filled(described["model"]["vocab"], own.ids)
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_special_tokens([*own.tokens, *own.ids, *named, own.mark_token])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": own.beginning or None,
        "clean_up_tokenization_spaces": False,
        "chat_template": own.beginning + chat_template(own.mark or own.mark_token),
        "model_max_length": 32768,
        **own.tokenizer,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return dict(tokenizer.get_vocab(with_added_tokens=True))
