"""Tokenizers with the chat templates of real models, which are not part of this repository."""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from pathlib import Path

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.catalog.families import family_of
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings

_TOKEN = re.compile(
    r"<\|[A-Za-z0-9_ :/\-]+\|?>|<[a-z_]+\|>|<｜[^<>｜\n]{1,40}｜>|</?think>|</?tool_call>|</?tool_response>"
    r"|\[/?[A-Z_]{3,}\]|<(?:start|end)_of_turn>|<(?:start|end)_function_(?:call|response|declaration)>|<escape>"
    r"|<bos>|<eos>|<\|\"\|>|</?minimax:tool_call>|</?seed:[a-z_]+>|\]~b\]|\]~!b\[|\[e~\[|</?longcat_[a-z_]+>"
    r"|<s>|</s>|<sep>|</assistant>|<end_of_sentence>|<SPECIAL_\d+>"
)
_PLAIN = re.compile(r"</?(think|tool_call|tool_response|minimax:tool_call)>")
"""Added tokens that are not special in real vocabularies."""

_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_msg|>",
    "<｜hy_eos:opensource｜>",
    "<seed:eos>",
    "<|return|>",
    "<|eom|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end_of_text|>",
    "<|eot|>",
    "[e~[",
    "<｜end▁of▁sentence｜>",
    "<|END_OF_TURN_TOKEN|>",
    "<SPECIAL_12>",
    "<end_of_sentence>",
    "</s>",
    "<|endoftext|>",
    "</assistant>",
    "<sep>",
    "<|user|>",
)
"""End-of-turn tokens, the most likely first."""

_STARTS = (
    "<bos>",
    "<s>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<｜begin▁of▁sentence｜>",
    "<BOS_TOKEN>",
)

_ARCHITECTURES = (
    ("deepseek.?r1.?distill.?llama", "llama"),
    ("deepseek.?r1.?distill|qwen2|qwq|xlam_qwen|mimo-vl", "qwen2"),
    ("deepseek.?v4", "deepseek_v4"),
    ("deepseek.?v3.2", "deepseek_v32"),
    ("deepseek|kimi-k2|gigachat", "deepseek_v3"),
    ("qwen3-coder|qwen3coder", "qwen3_moe"),
    ("qwen3.?[5-8]", "qwen3_5"),
    ("qwen3.?vl", "qwen3_vl"),
    ("qwen|miro", "qwen3"),
    ("glm-4.7-flash", "glm4_moe_lite"),
    ("glm-5", "glm_moe_dsa"),
    ("glm.?4.?[56]|glm4moe", "glm4_moe"),
    ("glm", "glm4"),
    ("ministral", "ministral3"),
    ("mistral-small|mistral3|devstral", "mistral3"),
    ("mistral|apriel|bielik", "mistral"),
    ("functiongemma|gemma-?3", "gemma3_text"),
    ("gemma-?4", "gemma4"),
    ("gemma", "gemma2"),
    ("granite.?4", "granitemoehybrid"),
    ("granite_20b", "gpt_bigcode"),
    ("granite", "granite"),
    ("llama-?4", "llama4"),
    ("nemotron-nano-v2|nemotron.?[3h]", "nemotron_h"),
    ("lfm2", "lfm2"),
    ("kimi-k3", "kimi_k3"),
    ("minimax.m2", "minimax_m2"),
    ("minimax", "minimax"),
    ("gpt.?oss|openai", "gpt_oss"),
    ("seed", "seed_oss"),
    ("smollm3", "smollm3"),
    ("phi", "phi3"),
    ("apertus", "apertus"),
    ("cohere2moe", "cohere2_moe"),
    ("r7b|cohere2", "cohere2"),
    ("cohere|command", "cohere"),
    ("internlm2", "internlm2"),
    ("hunyuan", "hunyuan_v1_dense"),
    ("hy3", "hy_v3"),
    ("step", "step3p5"),
    ("laguna", "laguna"),
    ("muse-glimmer", "muse_glimmer"),
    ("hermes|functionary|firefunction|toolace|xlam|llama|reka|rwkv", "llama"),
)
"""`model_type` by a pattern of the template's name; the first match counts."""


_PACKAGED = {
    "transformers-llama4": "transformers/models/llama4/processing_llama4.py",
    "transformers-smolvlm": "transformers/models/smolvlm/processing_smolvlm.py",
    "mlx-vlm-jina": "mlx_vlm/models/jina_vlm/processing_jinavlm.py",
    "mlx-vlm-molmo": "mlx_vlm/models/molmo/processing_molmo.py",
    "mlx-vlm-deepseek-v4": "mlx_vlm/models/deepseek_v4/processing_deepseek_v4.py",
}


def packaged_templates() -> dict[str, str]:
    """Return the chat templates in the code of installed packages, by name."""
    site = Path(sysconfig.get_path("purelib"))
    return {name: _template_in((site / file).read_text(encoding="utf-8")) for name, file in _PACKAGED.items()}


def _template_in(source: str) -> str:
    """Return the first string in a module's source that loops over messages."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return next(text for text in texts if isinstance(text, str) and re.search(r"{%-? for m", text))


def architecture_of(name: str) -> str:
    """Return the `model_type` that a template's name suggests, or `unknown`."""
    low = re.sub(r"^(trl|vllm|unsloth|rapid)-", "", name.lower())
    return next((kind for pattern, kind in _ARCHITECTURES if re.search(pattern, low)), "unknown")


def adapter_of_template(name: str, template: str, folder: Path) -> Adapter:
    """Return the adapter of a model with a template, and a tokenizer with the template's tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({word: ident for ident, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    found = dict.fromkeys([*_TOKEN.findall(template), "<|endoftext|>"])
    bos = next((token for token in _STARTS if token in found), None)
    if bos is None and "bos_token" in template:
        found[bos := "<s>"] = None
    tokenizer.add_tokens([AddedToken(token, special=not _PLAIN.fullmatch(token)) for token in found])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": next(end for end in _ENDS if end in found),
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    architecture = architecture_of(name)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 65536}))
    record = CapabilityRecord("text", family_of(architecture), architecture, 65536)
    return make_adapter(record, load_tokenizer(folder), Settings())
