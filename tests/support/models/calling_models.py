"""Tiny models with made weights, which answer every question with a call in one format.

A single layer of attention, uniform over the prompt, tells which city was named; otherwise the next token
depends on the last one alone. Every part of an answer is one token of the vocabulary:

    prompt → [thought →] call up to the city → city → rest of the call → end of turn
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.tests.support.models.tiny_models import CONFIGS
from greenroom.tests.support.templates.chat_tokenizers import TEMPLATES, make_chat_tokenizer

CITIES = ("Paris", "Cairo", "Lima", "Oslo", "Quito")

_HIDDEN = 32
_OTHER, _THOUGHT, _BEFORE, _CITY, _AFTER, _CLOSED, _SAID_CLOSED = range(7)
_OF_CITY, _SAID_CITY = 7, 7 + len(CITIES)
"""Dimensions of the hidden state: the last token's part in the answer, then what the prompt holds."""

_SURE, _LIKELY, _NAMED = 1e5, 5e4, 100.0
"""Weights of the output: for the next part of the answer, for a part without a thought before it, and for the
city that the prompt names. They are far apart, so that sampling at any temperature changes nothing.
"""
_SPREAD = 1000.0
"""Factor for what attention finds, as a mean over the prompt is small."""


@attrs.frozen
class CallingModel:
    """The description of a model.

    Args:
        name: Name of its folder, which tells the family if `kind` does not.
        template: Name of its chat template and special tokens (`chat_tokenizers`).
        kind: Architecture (`tiny_models.CONFIGS`); any other is Llama's under that name.
        writes: Id of the parser that reads its calls.
        thought: Reasoning before the call, with its markers, unless the prompt holds a `</think>`.
        always_thinks: True if it reasons even then.
    """

    name: str
    template: str
    kind: str
    writes: str
    thought: str = ""
    always_thinks: bool = False

    @property
    def parts(self) -> tuple[str, str]:
        """The call before and after the city."""
        call = make_tool_parser(self.writes).render("get_weather", json.dumps({"city": "zqcity"}))
        assert call is not None
        before, after = call.split("zqcity")
        return before, after


def make_calling_model(model: CallingModel, home: Path) -> Path:
    """Write a model into a folder of its name within `home`, and return the folder."""
    from tokenizers import AddedToken, Tokenizer

    folder = make_chat_tokenizer(model.template, home / model.name)
    before, after = model.parts
    parts = [part for part in (model.thought, before, *CITIES, after) if part]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(part, special=False, normalized=False) for part in parts])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = tokenizer.get_vocab(with_added_tokens=True)
    known = CONFIGS.get(model.kind) or {**CONFIGS["llama"], "model_type": model.kind}
    config = {
        **known,
        "hidden_size": _HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": _HIDDEN,
        "intermediate_size": 32,
        "vocab_size": len(ids),
        "max_position_embeddings": 8192,
        "sliding_window": 8192 if model.kind == "gemma3" else None,
        "sliding_window_pattern": 1,
        "eos_token_id": ids[TEMPLATES[model.template][2]],
    }
    _write_weights(folder, config, model, ids)
    return folder


def _write_weights(
    folder: Path, config: Mapping[str, Any], model: CallingModel, ids: Mapping[str, int]
) -> None:
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    (folder / "config.json").write_text(json.dumps(dict(config)))
    model_class, arguments = _get_classes(dict(config))
    shapes = {
        name: value.shape
        for name, value in tree_flatten(model_class(arguments.from_dict(dict(config))).parameters())
    }
    made = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    before, after = model.parts
    end = int(config["eos_token_id"])

    embedding, output = np.zeros((len(ids), _HIDDEN), np.float32), np.zeros((len(ids), _HIDDEN), np.float32)
    embedding[:, _OTHER] = 1
    for text, dimension in (
        (model.thought, _THOUGHT),
        (before, _BEFORE),
        (after, _AFTER),
        ("</think>", _CLOSED),
    ):
        if text in ids:
            embedding[ids[text]] = np.eye(_HIDDEN)[dimension]
    if "</think>" in ids:
        embedding[ids["</think>"], _OTHER] = 1
    if model.thought:
        output[ids[model.thought], _OTHER] = _SURE
        output[ids[model.thought], _SAID_CLOSED] = 0 if model.always_thinks else -_SURE * _SURE
        output[ids[before], _THOUGHT] = _SURE
    output[ids[before], _OTHER] = _LIKELY
    output[ids[after], _CITY] = _SURE
    output[end, _AFTER] = _SURE
    values, projection = np.zeros((_HIDDEN, _HIDDEN), np.float32), np.zeros((_HIDDEN, _HIDDEN), np.float32)
    pairs = [(_CLOSED, _SAID_CLOSED)]
    for number, city in enumerate(CITIES):
        embedding[ids[city]] = np.eye(_HIDDEN)[_CITY] + np.eye(_HIDDEN)[_OF_CITY + number]
        output[ids[city], [_BEFORE, _SAID_CITY + number]] = _SURE, _NAMED
        pairs.append((_OF_CITY + number, _SAID_CITY + number))
    for seen, said in pairs:
        values[said, seen] = 1
        projection[said, said] = _SPREAD
    for name in made:
        if "norm" in name and model.kind != "gemma3":  # Gemma adds 1 itself
            made[name][:] = 1
        elif name.endswith("embed_tokens.weight"):
            made[name] = embedding
        elif name.endswith("lm_head.weight"):
            made[name] = output
        elif name.endswith("v_proj.weight"):
            made[name] = values
        elif name.endswith("o_proj.weight"):
            made[name] = projection
    weights = {name: mx.array(value) for name, value in made.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
