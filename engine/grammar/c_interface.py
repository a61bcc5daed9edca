"""llguidance's C interface (`llguidance.h`), which its Python package exports too.

Its Python classes hold the GIL while they build a tokenizer (over a second at 150,000 tokens) and while they
consume a token (0.1 s under an ambiguous grammar), and copies of a matcher share a lexer and its lock. ctypes
calls release the GIL, and their copies are independent.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from greenroom.schemas.problems import Problem, ProblemError

_ERROR_BYTES = 1_000  # Size of the buffer for error messages, in bytes; llguidance truncates longer ones


class _ParserLimits(ctypes.Structure):
    _fields_ = (
        ("max_items_in_row", ctypes.c_size_t),
        ("initial_lexer_fuel", ctypes.c_uint64),
        ("step_lexer_fuel", ctypes.c_uint64),
        ("step_max_items", ctypes.c_size_t),
        ("max_lexer_states", ctypes.c_size_t),
        ("max_grammar_size", ctypes.c_size_t),
        ("precompute_large_lexemes", ctypes.c_bool),
        ("verbose_errors", ctypes.c_bool),
    )


class _MatcherInit(ctypes.Structure):
    _fields_ = (
        ("tokenizer", ctypes.c_void_p),
        ("log_buffer_level", ctypes.c_uint32),
        ("log_stderr_level", ctypes.c_uint32),
        ("ff_tokens_ok", ctypes.c_bool),
        ("backtrack_ok", ctypes.c_bool),
        ("limits", _ParserLimits),
        ("added_later", ctypes.c_byte * 256),
    )


class _TokenizerInit(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("vocab_size", ctypes.c_uint32),
        ("tok_eos", ctypes.c_uint32),
        ("token_lens", ctypes.c_void_p),
        ("token_bytes", ctypes.c_char_p),
        ("tokenizer_json", ctypes.c_char_p),
        ("tokenize_assumes_string", ctypes.c_bool),
        ("tokenize_fn", ctypes.c_void_p),
        ("use_approximate_greedy_tokenize_fn", ctypes.c_bool),
        ("tokenize_user_data", ctypes.c_void_p),
        ("slices", ctypes.c_void_p),
        ("tok_eos_extra", ctypes.c_void_p),
        ("tok_eos_extra_count", ctypes.c_uint32),
    )


_POINTER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llg_constraint_init_set_defaults": (None, (_POINTER, _POINTER)),
    "llg_new_tokenizer_v2": (_POINTER, (_POINTER, _TEXT, _SIZE)),
    "llg_free_tokenizer": (None, (_POINTER,)),
    "llg_new_matcher": (_POINTER, (_POINTER, _TEXT, _TEXT)),
    "llg_clone_matcher": (_POINTER, (_POINTER,)),
    "llg_free_matcher": (None, (_POINTER,)),
    "llg_validate_grammar": (ctypes.c_int32, (_POINTER, _TEXT, _TEXT, _TEXT, _SIZE)),
    "llg_matcher_compute_mask_into": (ctypes.c_int32, (_POINTER, _POINTER, _SIZE)),
    "llg_matcher_consume_token": (ctypes.c_int32, (_POINTER, ctypes.c_uint32)),
    "llg_matcher_rollback": (ctypes.c_int32, (_POINTER, _SIZE)),
    "llg_matcher_get_error": (_TEXT, (_POINTER,)),
    "llg_matcher_is_error": (ctypes.c_bool, (_POINTER,)),
    "llg_matcher_is_stopped": (ctypes.c_bool, (_POINTER,)),
    "llg_matcher_is_accepting": (ctypes.c_bool, (_POINTER,)),
}
"""Result type and argument types of each function."""


@cache
def _library() -> Any:
    """Return the library, after checking the structure layout by the defaults that it fills in."""
    import llguidance

    (path,) = Path(llguidance.__file__).parent.glob("_lib*.so")
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    init, defaults = _MatcherInit(), llguidance.LLParserLimits()
    library.llg_constraint_init_set_defaults(ctypes.byref(init), None)
    if any(getattr(init.limits, field) != getattr(defaults, field) for field, _ in _ParserLimits._fields_):
        detail = "Structured output is not available: this version of llguidance has another C interface."
        raise ProblemError(Problem(501, "library_missing", detail))
    return library


class TokenTrie:
    """A vocabulary in llguidance's form. Immutable, so threads share it.

    Args:
        tokens: Bytes of each token; names of special tokens.
        special: Ids of special tokens, which no text can produce.
        stop_token_ids: Tokens that end an answer, at least one.

    Raises:
        ProblemError: 501 for an incompatible version of llguidance.
        ValueError: llguidance cannot use these tokens.
    """

    def __init__(self, tokens: Sequence[bytes], special: set[int], stop_token_ids: Sequence[int]) -> None:
        library = _library()
        marked = [b"\xff" + text if ident in special else text for ident, text in enumerate(tokens)]
        lengths = np.fromiter(map(len, marked), np.uint32, len(marked))
        others = np.array(stop_token_ids[1:], np.uint32)
        init = _TokenizerInit(
            struct_size=ctypes.sizeof(_TokenizerInit),
            vocab_size=len(marked),
            tok_eos=stop_token_ids[0],
            token_lens=lengths.ctypes.data,
            token_bytes=b"".join(marked),
            # Our grammars force no tokens, so llguidance never tokenizes.
            use_approximate_greedy_tokenize_fn=True,
            tok_eos_extra=others.ctypes.data if len(others) else None,
            tok_eos_extra_count=len(others),
        )
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._free = library.llg_free_tokenizer
        self.pointer = library.llg_new_tokenizer_v2(ctypes.byref(init), error, _ERROR_BYTES)
        if not self.pointer:
            raise ValueError(error.value.decode(errors="replace"))

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._free(self.pointer)


def grammar_error(trie: TokenTrie, grammar: str, limits: Any) -> str:
    """Return llguidance's complaint about a grammar, if any; `Args` as in `GrammarMatcher.compile`.

    Cheaper than compilation, since no lexer is built.
    """
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    init = _matcher_init(trie, limits)
    library, data = _library(), grammar.encode()
    failed = library.llg_validate_grammar(ctypes.byref(init), b"guidance", data, error, _ERROR_BYTES)
    return error.value.decode(errors="replace") or "unknown" if failed < 0 else ""


def _matcher_init(trie: TokenTrie, limits: Any) -> _MatcherInit:
    init = _MatcherInit(tokenizer=trie.pointer)
    for field, _ in _ParserLimits._fields_:
        setattr(init.limits, field, getattr(limits, field))
    return init


class GrammarMatcher:
    """An llguidance matcher, which follows a text under a grammar. Used on one thread at a time."""

    def __init__(self, pointer: int, trie: TokenTrie) -> None:
        self._library = _library()
        self._pointer = pointer
        self._trie = trie

    def __del__(self) -> None:
        self._library.llg_free_matcher(self._pointer)

    @classmethod
    def compile(cls, trie: TokenTrie, grammar: str, limits: Any) -> GrammarMatcher:
        """Return a matcher at the start of a text; it is in error if the grammar does not compile. `trie`:
        vocabulary of the text's tokens; `limits`: llguidance's `LLParserLimits`.
        """
        init = _matcher_init(trie, limits)
        pointer = _library().llg_new_matcher(ctypes.byref(init), b"guidance", grammar.encode())
        return cls(pointer, trie)

    def deep_copy(self) -> GrammarMatcher:
        return GrammarMatcher(self._library.llg_clone_matcher(self._pointer), self._trie)

    def compute_mask(self, words: Any) -> None:
        """Write the mask of the tokens allowed next into an array `[mask_words]` (uint32), one bit each."""
        self._library.llg_matcher_compute_mask_into(self._pointer, words.ctypes.data, words.nbytes)

    def consume_token(self, token: int) -> bool:
        """Advance past a token; return whether it was allowed."""
        return bool(self._library.llg_matcher_consume_token(self._pointer, token) == 0)

    def rollback(self, count: int) -> bool:
        return bool(self._library.llg_matcher_rollback(self._pointer, count) == 0)

    def is_error(self) -> bool:
        """Return whether the matcher has failed for good."""
        return bool(self._library.llg_matcher_is_error(self._pointer))

    def get_error(self) -> str:
        """Return the error message; empty if there is no error."""
        error: bytes | None = self._library.llg_matcher_get_error(self._pointer)
        return (error or b"").decode(errors="replace")

    def is_stopped(self) -> bool:
        """Return whether the grammar allows no further text."""
        return bool(self._library.llg_matcher_is_stopped(self._pointer))

    def is_accepting(self) -> bool:
        return bool(self._library.llg_matcher_is_accepting(self._pointer))
