"""Conversations as the demo model sees them: tokenizer, chat template, and which tokens are to be learned."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import attrs
import jinja2
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .conversation import Example
from .corpus import examples, exercises
from .spans import LEARNED, Against, Span

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
ASSISTANT = "<|im_start|>assistant\n"
END_OF_TURN = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
VOCABULARY = 1024
SHORT = 12
OPENINGS = ("{", "[", "<think>", "<tool_call>")


@attrs.frozen
class TokenizedExample:
    """One conversation in tokens.

    Args:
        ids: The tokens.
        weights: How much each counts in the loss; 0 for what the model did not write.
        against: Where a token is not learned against all others: against which.
    """

    ids: list[int]
    weights: list[float]
    against: dict[int, Against] = attrs.field(factory=dict)


class Encoder:
    """Renders conversations with the chat template and turns them into tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._template = chat_template()
        self._known: dict[str, list[int]] = {}

    def __call__(self, example: Example) -> TokenizedExample:
        """Marks the model's own words: the target, and earlier answers that are exemplary."""
        opening, *spoken = render(self._template, example).split(ASSISTANT)
        ids: list[int] = []
        weights: list[float] = []
        against: dict[int, Against] = {}

        def add(text: str, weight: float) -> None:
            tokens = self._tokens(text)
            ids.extend(tokens)
            weights.extend([weight] * len(tokens))

        add(opening, 0)
        for piece, learn in zip(spoken, (*example.exemplary, False), strict=True):
            answer, end, rest = piece.partition(END_OF_TURN)
            add(ASSISTANT, 0)
            add(answer + end, LEARNED if learn else 0)
            add(rest, 0)
        for span in example.spans or (Span(example.target),):
            begins = len(ids)
            add(span.text, span.weight)
            ends = begins + 1 if span.against is Against.OPENINGS else len(ids)
            against.update(dict.fromkeys(range(begins, ends), span.against))
        add(END_OF_TURN, LEARNED)
        return TokenizedExample(ids, weights, against)

    def _tokens(self, text: str) -> list[int]:
        """Return the tokens of a text; short ones come again and again."""
        if len(text) > SHORT:
            return self._tokenizer.encode(text).ids
        if text not in self._known:
            self._known[text] = self._tokenizer.encode(text).ids
        return self._known[text]

    def rivals(self, against: Against) -> list[int]:
        """Return the tokens that a piece is learned against."""
        spelled = {
            i: self._tokenizer.decode([i], skip_special_tokens=False)
            for i in self._tokenizer.get_vocab().values()
        }
        return [i for i, text in spelled.items() if _is_rival(text, against)]


def _is_rival(text: str, against: Against) -> bool:
    match against:
        case Against.ALL:
            return True
        case Against.OPENINGS:
            return not text.strip() or text.lstrip().startswith(OPENINGS)
        case Against.NO_QUOTE:
            return '"' not in text
        case Against.NO_END:
            return not text.lstrip().startswith(("}", "]"))
        case Against.NO_BRACE:
            return not text.lstrip().startswith("}")
        case Against.NO_BRACKET:
            return not text.lstrip().startswith("]")


def chat_template() -> jinja2.Template:
    """The template, compiled as transformers compiles it."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE.read_text())


def render(template: jinja2.Template, example: Example) -> str:
    """The prompt, up to where the model begins to write."""
    return template.render(
        messages=example.messages,
        tools=example.tools,
        add_generation_prompt=True,
        enable_thinking=example.thinking,
    )


def train_tokenizer(seed: int) -> Tokenizer:
    """A byte-level BPE in which a word is the same tokens after a space, a quote or nothing.

    That makes copying a city into a call a matter of finding it: exact induction.
    """
    template = chat_template()
    sample = [*itertools.islice(examples(seed), 4000), *itertools.islice(exercises(seed), 500)]
    tokenizer = Tokenizer(models.BPE())
    words = Regex(r"\p{L}+|\p{N}|[^\p{L}\p{N}]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((render(template, example) + example.target for example in sample), trainer)
    return tokenizer
