"""Model families: their architectures, and traits that no template shows.

An entry here is all that a family needs, unless its models write calls or reasoning in a format of their own
(notes/add-a-family.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

import attrs

from greenroom.schemas.models.capabilities import Family


@attrs.frozen
class FamilyTraits:
    """Common traits of a family's models.

    Args:
        prefixes: Prefixes of `model_type`; the first family with a match is taken.
        names: Prefixes of words in model names, for a `model_type` without a family.
        tool_parser: Id of the tool call parser, for models whose template shows no format.
        end_of_turn_tokens: Tokens that end a turn but are not declared in the model's files.
        reasoning_lines: System messages that switch reasoning on and off, if the template cannot.
        reasoning_words: Words after the user's message that do so, likewise.
        empty_reasoning: Text at the end of the prompt that makes the model skip reasoning, likewise.
    """

    prefixes: tuple[str, ...] = ()
    names: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    tool_parser: str = "null"
    reasoning_parser: str = "null"
    end_of_turn_tokens: tuple[str, ...] = ()
    reasoning_lines: tuple[str, str] | None = None
    reasoning_words: tuple[str, str] | None = None
    empty_reasoning: str = ""


FAMILIES: Mapping[Family, FamilyTraits] = {
    "qwen": FamilyTraits(("qwen", "qwq"), "hermes_json", "think_tag", names=("qwen", "qwq", "qvq")),
    "glm4": FamilyTraits(
        ("glm", "chatglm"),
        "glm4_native",
        "think_tag",
        ("<|user|>", "<|observation|>"),
        names=("glm", "chatglm"),
    ),
    "llama": FamilyTraits(
        ("llama",),
        "llama_xml",
        end_of_turn_tokens=("<|eot|>", "<|eom|>"),
        names=("llama", "codellama", "tinyllama"),
    ),
    "gemma": FamilyTraits(
        ("gemma", "recurrent_gemma"),
        end_of_turn_tokens=("<turn|>", "<|tool_response>", "<start_function_response>"),
        names=("gemma", "codegemma", "functiongemma", "medgemma", "paligemma", "recurrentgemma"),
    ),
    "mistral": FamilyTraits(
        ("mistral", "ministral", "mixtral", "pixtral"),
        names=("mistral", "ministral", "mixtral", "pixtral", "devstral", "magistral", "codestral"),
    ),
    "liquid": FamilyTraits(("lfm2",), "mlx_lm.pythonic", "think_tag", names=("lfm2",)),
    "granite": FamilyTraits(("granite",), "hermes_json", names=("granite",)),
    "gpt_oss": FamilyTraits(
        ("gpt_oss",), "harmony", "harmony", ("<|return|>", "<|call|>"), names=("gpt-oss",)
    ),
    "phi": FamilyTraits(
        ("phi3", "phi4", "phimoe"),
        end_of_turn_tokens=("<|end|>",),
        names=("phi-3", "phi3", "phi-4", "phi4", "phimoe"),
    ),
    "nemotron_nas": FamilyTraits(
        ("nemotron-nas",),
        "null",
        "think_tag",
        reasoning_lines=("detailed thinking on", "detailed thinking off"),
    ),
    "mimo": FamilyTraits(
        ("mimo",), "hermes_json", "think_tag", reasoning_words=("/think", "/no_think"), names=("mimo",)
    ),
    "deepseek": FamilyTraits(("deepseek",), empty_reasoning="<think>\n\n</think>\n\n", names=("deepseek",)),
    "nemotron": FamilyTraits(("nemotron",), end_of_turn_tokens=("<SPECIAL_12>",), names=("nemotron",)),
    "apertus": FamilyTraits(
        ("apertus",), "apertus", "apertus", ("<|assistant_end|>", "<|tools_suffix|>"), names=("apertus",)
    ),
    "jamba": FamilyTraits(("jamba",), end_of_turn_tokens=("<|eom|>",), names=("jamba",)),
    "hunyuan": FamilyTraits(("hunyuan", "hy_v3"), end_of_turn_tokens=("<|eos|>",), names=("hunyuan",)),
    "default": FamilyTraits(),
}


def family_of(*architectures: str, name: str = "") -> Family:
    """Return the family of a model, by its architecture or else its name.

    Args:
        architectures: Its `model_type` and nested ones; the first that belongs to a family decides.
        name: Id of the model, without regard to its owner; the first family named in it is taken.
    """
    for architecture in architectures:
        for family, traits in FAMILIES.items():
            if architecture.startswith(traits.prefixes):
                return family
    return _family_named(name)


def _family_named(name: str) -> Family:
    words = re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].lower())
    places = {
        place: family
        for family, traits in FAMILIES.items()
        for beginning in traits.names
        if (place := f"-{words}".find(f"-{beginning}")) >= 0
    }
    return places[min(places)] if places else "default"


# Prompt formats for fill-in-the-middle completion with code models.
#
# The format is chosen by the tokens in a model's vocabulary. Source: "Efficient Training of Language Models
# to Fill in the Middle" (Bavarian et al., 2022), and the models' cards.


@attrs.frozen
class FillFormat:
    """A family's prompt format for text before and after a gap.

    Args:
        template: Prompt with placeholders `{prefix}` and `{suffix}`.
        tokens: Tokens that must be in the vocabulary.
        ends: Tokens that end the middle, if they are in the vocabulary.
    """

    template: str
    tokens: tuple[str, ...]
    ends: tuple[str, ...] = ()

    def prompt(self, prefix: str, suffix: str, mark: Callable[[str], str]) -> str:
        """Return the prompt for the text between a prefix and a suffix. `mark`: function that escapes control
        tokens in the client's texts.
        """
        return self.template.format(prefix=mark(prefix), suffix=mark(suffix))

    def stop_tokens(self, added_tokens: Mapping[str, int]) -> frozenset[int]:
        return frozenset(added_tokens[token] for token in (*self.tokens, *self.ends) if token in added_tokens)


def _in_order(prefix: str, suffix: str, middle: str, *ends: str) -> FillFormat:
    return FillFormat(f"{prefix}{{prefix}}{suffix}{{suffix}}{middle}", (prefix, suffix, middle), ends)


FILL_FORMATS = (
    # Qwen coder, CodeGemma, Granite code and others.
    _in_order(
        "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"
    ),
    # StarCoder.
    _in_order("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<repo_name>", "<file_sep>"),
    # DeepSeek coder.
    _in_order("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    # Codestral, which reads the suffix first.
    FillFormat("[SUFFIX]{suffix}[PREFIX]{prefix}", ("[SUFFIX]", "[PREFIX]"), ("[MIDDLE]",)),
)


def find_fill_format(added_tokens: Collection[str]) -> FillFormat | None:
    return next((form for form in FILL_FORMATS if all(token in added_tokens for token in form.tokens)), None)
