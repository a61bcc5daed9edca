"""Tokenization and detokenization on one thread; threads never share a copy of a tokenizer."""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from greenroom.engine.catalog.load_failures import named_failures
from greenroom.engine.catalog.model_files import check_folder, check_tokenizer_files, read_optional
from greenroom.engine.tokenizer.control_tokens import restore_marks, split_marked
from greenroom.engine.tokenizer.detokenizer import (
    BoundedDetokenizer,
    ByteDetokenizer,
    TokenNames,
    vocabulary_of,
)
from greenroom.engine.tokenizer.growth import check_backend
from greenroom.engine.tokenizer.reading_in_pieces import PIECE, encode_in_pieces, read_in_pieces
from greenroom.schemas.messages.messages import ControlToken

_TAIL = 4  # Number of tokens fed to a detokenizer before raw text continues; covers any split character


class Detokenizer(Protocol):
    """Converts tokens to text as they stream (mlx-lm's streaming detokenizers)."""

    @property
    def last_segment(self) -> str:
        """Text decoded since this property was last read."""

    def add_token(self, token: int) -> None:
        """Decode the next token."""

    def finalize(self) -> None:
        """Flush the text that is still held back."""


class ChatTokenizer:
    """A tokenizer and its chat template, wrapped so that user text cannot contain control tokens.

    Imports transformers, so it must be created under the import lock.
    """

    def __init__(self, wrapped: Any, folder: Path) -> None:
        from greenroom.engine.tokenizer.bounded_environment import bound_templates

        bound_templates()
        self.folder = folder
        self.wrapped = wrapped
        self.eos_token_ids: frozenset[int] = frozenset(wrapped.eos_token_ids)
        # One more than the highest id: those of added tokens may leave a gap.
        self.vocab_size: int = 1 + max([len(wrapped) - 1, *wrapped.added_tokens_decoder])
        self._encoder = TextEncoder(wrapped)
        self._as_text: dict[str, list[int]] = {}
        self._reserved: tuple[str, ...] = ()

    def reserve(self, words: Iterable[str]) -> None:
        """Treat words as control tokens, even those that are no tokens; call before any other use."""
        self._reserved = tuple(words)

    @functools.cached_property
    def chat_template(self) -> str | None:
        """Source of the chat template; None if the model has none, or renders prompts by Python code."""
        template = self.wrapped.chat_template
        if isinstance(template, dict):
            named = {**template}
            return named.get("tool_use") or named.get("default") or next(iter(named.values()), None)
        return template if isinstance(template, str) else None

    @property
    def has_chat_template(self) -> bool:
        """True if conversations can be rendered; some models have code instead of a template."""
        return bool(self.wrapped.has_chat_template)

    @functools.cached_property
    def vocab(self) -> Mapping[str, int]:
        return vocabulary_of(self.wrapped)

    @functools.cached_property
    def token_names(self) -> TokenNames:
        return TokenNames(self.wrapped)

    @functools.cached_property
    def longest_token(self) -> int:
        """Length of the longest token in characters, which yields a lower bound of a text's token count."""
        return max(map(len, self.vocab), default=1)

    @functools.cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """Tokens that only the template may write: special ones, and those that the template contains."""
        template = self.chat_template or ""
        own = (
            token.content
            for token in self.wrapped.added_tokens_decoder.values()
            if token.special or (token.content in template and not token.content.isspace())
        )
        return tuple(dict.fromkeys((*own, *self._reserved)))

    @functools.cached_property
    def controls_by_id(self) -> dict[int, ControlToken]:
        """Control tokens by id as the model generates them, including those of the form `<|…|>`."""
        named = set(self.control_tokens)
        controls = {}
        for ident, token in self.wrapped.added_tokens_decoder.items():
            text = token.content
            silent = token.special or (text.startswith("<|") and text.endswith("|>"))
            if silent or text in named:
                controls[ident] = ControlToken(text, silent)
        return controls

    @functools.cached_property
    def added_tokens(self) -> dict[str, int]:
        """Ids of tokens that are matched as a whole, by text: special ones and others such as `<think>`."""
        return {token.content: ident for ident, token in self.wrapped.added_tokens_decoder.items()}

    @property
    def bos_token(self) -> str | None:
        token = self.wrapped.bos_token
        return token if isinstance(token, str) else None

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Return the conversation as rendered prompt text. Raises TemplateLimitError: the template exceeds
        its budget. Raises Exception: any other error of the template.
        """
        options = {**self._variables(tools), **(options or {})}
        text = self.wrapped.apply_chat_template(
            messages,
            tools=tools,
            tokenize=False,
            add_generation_prompt=add_generation_prompt and not continue_final_message,
            continue_final_message=continue_final_message,
            **options,
        )
        return restore_marks(str(text))

    def _variables(self, tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        """Return the variables of Firefunction's template: the tools as JSON text, and the date."""
        if not self._reads_functions:
            return {}
        functions = [tool["function"] for tool in tools or []]
        date = datetime.datetime.now().strftime("%b %d %Y")
        return {"functions": json.dumps(functions, ensure_ascii=False, indent=4), "datetime": date}

    @functools.cached_property
    def _reads_functions(self) -> bool:
        return re.search(r"[+{-]\s*functions\s*[-+%|}]", self.chat_template or "") is not None

    def encode_prompt(self, text: str, *, begins: bool = True) -> Iterator[list[int]]:
        """Yield the token ids of raw text; `begins` adds the start tokens unless the text has them."""
        bos = self.bos_token
        return self._encoder.pieces(text, special=begins and (bos is None or not text.startswith(bos)))

    @property
    def beginning(self) -> list[int]:
        """Token ids that the model needs at the start of a prompt; empty if there are none."""
        return self._encoder.special_tokens[0]

    def encode_rendered(
        self, text: str, rewrite: Callable[[str], str] = lambda text: text
    ) -> Iterator[list[int]]:
        """Yield the token ids of a rendered conversation; marked control tokens become ordinary text.

        Args:
            rewrite: Function that returns the text to tokenize for a piece without marked tokens; called in
                order.
        """
        begun = False
        for piece, literal in split_marked(text):
            if literal:
                yield self._encode_as_text(piece)
            else:
                yield from self._encoder.pieces(rewrite(piece), inside=begun)
            begun = True

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.wrapped.decode(list(tokens)))

    def new_detokenizer(self, preceding_tokens: Sequence[int] = ()) -> Detokenizer:
        """Return a detokenizer for one request.

        Args:
            preceding_tokens: Tokens before the output, so that continued raw text keeps a leading space that
                the vocabulary puts before each first word; empty for an answer.
        """
        known = self.wrapped.detokenizer
        detokenizer: Detokenizer = BoundedDetokenizer(known)
        if hasattr(known, "tokenmap"):  # A byte-level vocabulary, or one of SentencePiece.
            names, trims_space = self.token_names, getattr(known, "trim_space", False)
            detokenizer = ByteDetokenizer(lambda token: names.look_up(token).bytes, trims_space)
        for token in preceding_tokens[-_TAIL:]:
            detokenizer.add_token(token)
        _ = detokenizer.last_segment
        return detokenizer

    def _encode_as_text(self, token: str) -> list[int]:
        tokens = self._as_text.get(token)
        if tokens is None:
            tokens = self._as_text[token] = self._encode_control_token_as_text(token)
        return tokens

    def _encode_control_token_as_text(self, token: str) -> list[int]:
        if hasattr(self.wrapped._tokenizer, "_encode_without_added_tokens"):
            tokens = list(self.wrapped._tokenizer._encode_without_added_tokens("\n" + token))
            head = len(self._encoder.newline)
            tokens = tokens[head:] if tokens[:head] == self._encoder.newline else tokens
            if self.added_tokens.get(token) not in tokens:
                return tokens
        return [ident for character in token for ident in self._encoder.inside(character)]


def load_tokenizer(
    folder: Path, trust_remote_code: bool = False, name: str = "", template: str | None = None
) -> ChatTokenizer:
    """Load the tokenizer of a model's folder, without weights.

    Imports mlx-lm and transformers, so it must be called under the import lock.

    Raises:
        ProblemError: 503 `load_failed`.
    """
    from mlx_lm.utils import load_tokenizer as load_wrapped

    read_in_pieces()
    with named_failures(folder, name):
        check_folder(folder)
        check_tokenizer_files(folder)
    with named_failures(folder, name, "its tokenizer"):
        # Else transformers takes mistral-common, where that is installed, for folders with tekken.json.
        configuration: dict[str, Any] = {"trust_remote_code": trust_remote_code, "mistral_format": False}
        if template := template or _processors_template(folder):
            configuration["chat_template"] = template
        wrapped = load_wrapped(folder, configuration, eos_token_ids=_configured_eos_token_ids(folder))
        check_backend(getattr(wrapped._tokenizer, "backend_tokenizer", None))
        return ChatTokenizer(wrapped, folder)


def _processors_template(folder: Path) -> str | None:
    template = read_optional(folder / "chat_template.json").get("chat_template")
    return template if isinstance(template, str) else None


def _configured_eos_token_ids(folder: Path) -> list[int]:
    """Return end-of-turn ids of config.json and generation_config.json; mlx-lm reads only one of them."""
    config = read_optional(folder / "config.json")
    found: list[int] = []
    for source in (config, config.get("text_config"), read_optional(folder / "generation_config.json")):
        value = source.get("eos_token_id") if isinstance(source, dict) else None
        values = value if isinstance(value, list) else [value]
        found += [ident for ident in values if isinstance(ident, int) and not isinstance(ident, bool)]
    return found


class TextEncoder:
    """Encodes text for one thread, without blocking other threads. `wrapped`: mlx-lm's `TokenizerWrapper`."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._backend = getattr(wrapped._tokenizer, "_tokenizer", None)
        if self._backend is not None:
            # Settings saved after training on padded batches would truncate and pad prompts.
            self._backend.no_truncation()
            self._backend.no_padding()

    def pieces(self, text: str, *, special: bool = False, inside: bool = False) -> Iterator[list[int]]:
        """Yield the token ids of a text, piece by piece if it is long.

        Args:
            special: True to add the special tokens at the text's start and end.
            inside: True if other text precedes it; SentencePiece would otherwise prepend a space.
        """
        if len(text) <= PIECE:
            yield self.inside(text) if inside else self._encode(text, special=special)
            return
        prefix, suffix = self.special_tokens if special else ([], [])
        yield prefix
        encode = self.inside if inside else self._encode
        yield from encode_in_pieces(text, encode, self.inside, anywhere=not self._is_unigram)
        yield suffix

    def inside(self, text: str) -> list[int]:
        tokens = self._encode("\n" + text)
        head = len(self.newline)
        return tokens[head:] if tokens[:head] == self.newline else self._encode(text)

    @property
    def _is_unigram(self) -> bool:
        return self._backend is not None and type(self._backend.model).__name__ == "Unigram"

    @functools.cached_property
    def newline(self) -> list[int]:
        return self._encode("\n")

    @functools.cached_property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        """Special tokens at the start and at the end of a text."""
        plain, special = self._encode("a"), self._encode("a", special=True)
        starts = range(len(special) - len(plain) + 1)
        at = next((i for i in starts if special[i : i + len(plain)] == plain), 0)
        return special[:at], special[at + len(plain) :]

    def _encode(self, text: str, *, special: bool = False) -> list[int]:
        if self._backend is None:
            return list(self._wrapped.encode(text, add_special_tokens=special))
        # The batch function lets other threads run; `encode` holds the GIL throughout.
        encoded = self._backend.encode_batch_fast([text], add_special_tokens=special)[0]
        tokens: list[int] = encoded.ids
        return tokens
