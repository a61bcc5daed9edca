"""Tiny real models: mlx-lm's own architectures with random weights.

Their output is noise, but varied noise. Weights are scaled by 3 and the output matrix is untied, because
plain random weights repeat two or three tokens and so hide faults of a cache. Special tokens are never the
most likely, so greedy answers run to `max_tokens`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.tests.support.architectures.recurrent_kinds import RECURRENT
from greenroom.tests.support.models.tiny_kinds import FURTHER, PLAIN

TinyModel = Callable[[str], Path]
"""Function that returns the folder of the tiny model of a kind, made once per test session."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)

TOKENIZER = Path(__file__).parent / "tiny_tokenizer.json"

CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}# Tools
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
For each function call, return a json object with function name and arguments within <tool_call></tool_call>.
<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != 'system' or not loop.first %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""

CONFIGS: Mapping[str, Mapping[str, Any]] = {**PLAIN, **FURTHER, **RECURRENT}
"""config.json by kind."""

FAMILIES = ("qwen3", "llama", "gemma3", "glm4", "mistral")
"""Kinds whose greedy output must equal that of `mlx_lm.generate`."""


_EMBEDDINGS = ("embed_tokens.weight", "embedding.weight", "embeddings.weight", "wte.weight")
_TIED = {"gemma2": 0.2, "gemma3n": 0.2}
"""Scale of tied embeddings; a large one would make models repeat the input token."""


_NOISE = 0.3
"""Spread of noise for weights that an architecture initialises to zero, such as gates and convolutions: with
zeros, its recurrent blocks would pass nothing on.
"""


def make_tokenizer(folder: Path) -> None:
    """Write a byte-level BPE tokenizer, trained on Python 3.11's standard library, and a tool template."""
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 32768,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def make_weights(folder: Path, config: Mapping[str, Any], seed: int = 0) -> None:
    """Write config.json and random weights of its architecture."""
    from greenroom.engine.loading.libraries import import_text_libraries

    import_text_libraries()  # mlx-lm's own import fails if fewer than 4,096 files may be open
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    (folder / "config.json").write_text(json.dumps(dict(config)))
    model_class, arguments_class = _get_classes(dict(config))
    mx.random.seed(seed)
    model = model_class(arguments_class.from_dict(dict(config)))
    weights = dict(tree_flatten(model.parameters()))
    output = next((name for name in weights if name.endswith("lm_head.weight")), None)
    embedding = next(name for name in weights if name.endswith(_EMBEDDINGS))
    for name, value in weights.items():
        if mx.abs(value).max().item() == 0:
            weights[name] = mx.random.normal(value.shape, value.dtype, scale=_NOISE)
        elif value.ndim == 2:
            weights[name] = value * (_TIED.get(config["model_type"], 3) if name == embedding else 3)
    output = output or embedding
    reserved = len(SPECIAL_TOKENS)
    weights[output] = mx.concatenate([mx.zeros_like(weights[output][:reserved]), weights[output][reserved:]])
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def make_tiny_model(kind: str, folder: Path, tokenizer: Path, **changes: Any) -> Path:
    """Make a model of one kind in `folder`.

    Args:
        tokenizer: Folder with a tokenizer to copy.
        changes: Fields of config.json to override.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    make_weights(folder, {**CONFIGS[kind], **changes})
    return folder
