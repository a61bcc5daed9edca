"""Prompt formats for fill-in-the-middle completion with code models.

The format is chosen by the tokens in a model's vocabulary. Source: "Efficient Training of Language Models to
Fill in the Middle" (Bavarian et al., 2022), and the models' cards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs


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
        """Return the prompt for the text between a prefix and a suffix.

        Args:
            mark: Function that escapes control tokens in the client's texts.
        """
        places = {"{prefix}": mark(prefix), "{suffix}": mark(suffix)}
        before, between, after = self._parts()
        first, second = sorted(places, key=self.template.index)
        return f"{before}{places[first]}{between}{places[second]}{after}"

    def stop_tokens(self, added_tokens: Mapping[str, int]) -> frozenset[int]:
        """Return the ids of the tokens that end the middle."""
        return frozenset(added_tokens[token] for token in (*self.tokens, *self.ends) if token in added_tokens)

    def _parts(self) -> tuple[str, str, str]:
        first, second = sorted(("{prefix}", "{suffix}"), key=self.template.index)
        before, rest = self.template.split(first)
        between, after = rest.split(second)
        return before, between, after


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
    """Return the format supported by a vocabulary; None if the model cannot fill in the middle."""
    return next((form for form in FILL_FORMATS if all(token in added_tokens for token in form.tokens)), None)
