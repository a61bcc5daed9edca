"""Tiny real models, made on the fly: mlx-lm's own architectures with random weights.

Their output is noise, but varied noise: weights are scaled by 3 and the output matrix is untied, because
plain random weights repeat two or three tokens and so hide faults of a cache. Special tokens are never the
likeliest, so greedy rows run to `max_tokens`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TinyModel = Callable[[str], Path]
"""Folder of the tiny model of a kind; made once per test session."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
VOCABULARY = 2048

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

_SIZES = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 2,
}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {**_SIZES, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "llama": {**_SIZES, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "gemma3": {
        **_SIZES,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": 32,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 32,
        "rope_local_base_freq": 10000.0,
    },
    "glm4": {
        **_SIZES,
        "model_type": "glm4",
        "architectures": ["Glm4ForCausalLM"],
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
    },
    "mistral": {**_SIZES, "model_type": "mistral", "architectures": ["MistralForCausalLM"]},
    "ministral": {
        **_SIZES,
        "model_type": "ministral3",
        "architectures": ["Ministral3ForCausalLM"],
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16384,
        },
    },
    "granite": {
        **_SIZES,
        "model_type": "granite",
        "architectures": ["GraniteForCausalLM"],
        "logits_scaling": 1.0,
        "attention_multiplier": 0.18,
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "lfm2": {
        **_SIZES,
        "model_type": "lfm2",
        "architectures": ["Lfm2ForCausalLM"],
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 128,
        "block_ff_dim": 384,
        "block_multiple_of": 64,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention"] * 2,
    },
    "qwen3_5": {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "text_config": {
            **_SIZES,
            "model_type": "qwen3_5_text",
            "full_attention_interval": 2,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "linear_conv_kernel_dim": 4,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.25,
            },
        },
    },
}
"""config.json by kind. The last four are there for sliding windows among full layers, and hybrid caches."""

FAMILIES = ("qwen3", "llama", "gemma3", "glm4", "mistral")
"""The kinds whose greedy output is promised to equal `mlx_lm.generate`."""


def make_tokenizer(folder: Path) -> None:
    """Train a byte-level BPE on the standard library and write it with a template that takes tools."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(os.__file__).parent.glob("*.py"))[:60]
    tokenizer.train([str(source) for source in sources], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
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
    """Write config.json and random weights of that architecture."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    (folder / "config.json").write_text(json.dumps(dict(config)))
    model_class, arguments_class = _get_classes(dict(config))
    mx.random.seed(seed)
    model = model_class(arguments_class.from_dict(dict(config)))
    weights = {
        name: value * 3 if value.ndim == 2 else value for name, value in tree_flatten(model.parameters())
    }
    heads = [name for name in weights if name.endswith("lm_head.weight")]
    output = heads[0] if heads else "model.embed_tokens.weight"
    reserved = len(SPECIAL_TOKENS)
    weights[output] = mx.concatenate([mx.zeros_like(weights[output][:reserved]), weights[output][reserved:]])
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def make_tiny_model(kind: str, folder: Path, tokenizer: Path, **changes: Any) -> Path:
    """Make the model of that kind in `folder`.

    Args:
        tokenizer: Folder that holds a tokenizer made before.
        changes: Fields of config.json that differ from the kind's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    make_weights(folder, {**CONFIGS[kind], **changes})
    return folder
