"""Model families: which architectures belong to one, and what its models do that no template shows.

A row here is all that a family needs, unless its models write calls or thoughts in a format of their own
(notes/add-a-family.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.capabilities import Family


@attrs.frozen
class FamilyTraits:
    """What the models of a family have in common.

    Args:
        prefixes: Beginnings of `model_type`; the first family with one that fits is taken.
        tool_parser: Id of the parser of calls, for models whose template shows none.
        thinking_parser: Likewise for thoughts.
        end_of_turn_tokens: Tokens that end a turn though no file of the model declares them.
        thinking_lines: System messages that switch thinking on and off, where no template does.
        thinking_words: Likewise, words behind the user's message.
        empty_thought: Likewise, what a prompt ends with so that the answer begins without a thought.
    """

    prefixes: tuple[str, ...] = ()
    tool_parser: str = "null"
    thinking_parser: str = "null"
    end_of_turn_tokens: tuple[str, ...] = ()
    thinking_lines: tuple[str, str] | None = None
    thinking_words: tuple[str, str] | None = None
    empty_thought: str = ""


FAMILIES: Mapping[Family, FamilyTraits] = {
    "qwen": FamilyTraits(("qwen", "qwq"), "hermes_json", "think_tag"),
    "glm4": FamilyTraits(("glm", "chatglm"), "glm4_native", "think_tag", ("<|user|>", "<|observation|>")),
    "llama": FamilyTraits(("llama",), "llama_xml", end_of_turn_tokens=("<|eot|>", "<|eom|>")),
    "gemma": FamilyTraits(
        ("gemma", "recurrent_gemma"),
        end_of_turn_tokens=("<turn|>", "<|tool_response>", "<start_function_response>"),
    ),
    "mistral": FamilyTraits(("mistral", "ministral", "mixtral", "pixtral")),
    "liquid": FamilyTraits(("lfm2",), "mlx_lm.pythonic", "think_tag"),
    "granite": FamilyTraits(("granite",), "hermes_json"),
    "gpt_oss": FamilyTraits(("gpt_oss",), "harmony", "harmony", ("<|return|>", "<|call|>")),
    "phi": FamilyTraits(("phi3", "phi4", "phimoe"), end_of_turn_tokens=("<|end|>",)),
    "nemotron_nas": FamilyTraits(
        ("nemotron-nas",),
        "null",
        "think_tag",
        thinking_lines=("detailed thinking on", "detailed thinking off"),
    ),
    "mimo": FamilyTraits(("mimo",), "hermes_json", "think_tag", thinking_words=("/think", "/no_think")),
    "deepseek": FamilyTraits(("deepseek",), empty_thought="<think>\n\n</think>\n\n"),
    "nemotron": FamilyTraits(("nemotron",), end_of_turn_tokens=("<SPECIAL_12>",)),
    "apertus": FamilyTraits(("apertus",), "apertus", "apertus", ("<|assistant_end|>", "<|tools_suffix|>")),
    "jamba": FamilyTraits(("jamba",), end_of_turn_tokens=("<|eom|>",)),
    "hunyuan": FamilyTraits(("hunyuan", "hy_v3"), end_of_turn_tokens=("<|eos|>",)),
    "default": FamilyTraits(),
}


def family_of(architecture: str) -> Family:
    """Return the family of an architecture (`model_type`)."""
    for family, traits in FAMILIES.items():
        if architecture.startswith(traits.prefixes):
            return family
    return "default"
