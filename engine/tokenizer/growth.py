"""Checks of tokenizers that expand texts without a limit before they tokenize them.

Anybody may have written a tokenizer's normalizer. Nine chained replacements of one character with ten turn
ten letters into 10 GB.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

_MOST_TIMES = 8  # Largest growth factor of a text; real tokenizers replace a character with one or three

_LONGEST_ADDED = 64  # Limit on the characters added before a text or substituted for one character by a table

_MOST_ADDED_TOKENS = 1_000  # Limit on the tokens added around every text


def check_growth(document: Mapping[str, Any]) -> None:
    """Check that a tokenizer does not expand texts too much.

    Args:
        document: Content of tokenizer.json; the vocabulary may be missing.

    Raises:
        ValueError: A part expands texts too much; the message is one sentence about it.
    """
    for part, its in (("normalizer", "texts"), ("decoder", "answers")):
        steps = list(_steps(document.get(part)))
        if (times := growth_factor(part, steps)) > _MOST_TIMES:
            raise ValueError(f"its {part} may make {its} {times:,.0f} times as long (at most {_MOST_TIMES})")
        if sum(step.get("type") == "Precompiled" for step in steps) > 1:
            raise ValueError(f"its {part} has more than one precompiled table")
        if any(_longest_added(step) > _LONGEST_ADDED for step in steps):
            raise ValueError(f"its {part} adds more than {_LONGEST_ADDED} characters at once")
    added = sum(_added_tokens(step) for step in _steps(document.get("post_processor")))
    if added > _MOST_ADDED_TOKENS:
        raise ValueError(f"its post_processor adds {added:,} tokens (at most {_MOST_ADDED_TOKENS:,})")


def check_backend(backend: Any) -> None:
    """Check a tokenizer that was loaded from other files than tokenizer.json. Raises ValueError: as in
    `check_growth`.
    """
    parts = {name: getattr(backend, name, None) for name in ("normalizer", "decoder", "post_processor")}
    check_growth({name: json.loads(part.__getstate__()) for name, part in parts.items() if part is not None})


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    pending = [part]
    while pending:
        step = pending.pop()
        if isinstance(step, Mapping):
            yield step
            for name in ("normalizers", "decoders", "processors"):
                if isinstance(listed := step.get(name), list):
                    pending += reversed(listed)


def _longest_added(step: Mapping[str, Any]) -> int:
    if step.get("type") == "Precompiled":
        return _longest_replacement(step.get("precompiled_charsmap"))
    return len(str(step.get("prepend") or step.get("prefix") or ""))


def _longest_replacement(table: Any) -> int:
    """Return the length of the longest text in a SentencePiece table: a trie's size, the trie, and texts.

    Source: github.com/google/sentencepiece, src/normalizer.cc, `DecodePrecompiledCharsMap`.
    """
    try:
        data = base64.b64decode(str(table or ""), validate=True)
    except (binascii.Error, ValueError):
        return 0  # The library itself rejects such a table.
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return max((len(text.decode("utf-8", "replace")) for text in texts.split(b"\0")), default=0)


def _added_tokens(step: Mapping[str, Any]) -> int:
    templates = [step.get(name) for name in ("single", "pair")]
    listed = max((len(template) for template in templates if isinstance(template, list)), default=0)
    known = step.get("special_tokens")
    tokens = known.values() if isinstance(known, Mapping) else ()
    return listed * max((len(_ids(token)) for token in tokens), default=1)


def _ids(token: Any) -> list[Any]:
    ids = token.get("ids") if isinstance(token, Mapping) else None
    return ids if isinstance(ids, list) else []


# Upper bound of the factor by which a chain of replacements expands a text.
#
# Each character has a weight: the largest length of the text that replaces it by the end of the chain.
# Weights are computed from the last step to the first. So replacements of different letters (ä by ae, ö by
# oe) count once each, but factors multiply if one step replaces text that an earlier step has inserted.

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
_FORMS: Mapping[str, Form] = {"NFC": "NFC", "NFD": "NFD", "NFKC": "NFKC", "NFKD": "NFKD", "Nmt": "NFKC"}

_MOST_STEPS, _MOST_CHARACTERS, _LONGEST_PATTERN = 1_000, 20_000, 10_000
"""Limits on a chain; those of real tokenizers have some dozens of steps, each with a few characters."""

_CLASS = re.compile(r"\\[pP](?:\{\^?\w*\}|\w)|\[:\^?\w+:\]")
"""Pattern of character classes that Python's regular expressions do not know."""

_NESTED = re.compile(r"\[\[|--|&&|~~|\|\|")
"""Pattern of syntax that Python may read differently from the library."""

_BYTES = 4  # Largest number of bytes of a character in UTF-8


def growth_factor(part: str, steps: Sequence[Mapping[str, Any]]) -> float:
    """Return an upper bound of a text's length after the steps over its length before.

    Unicode's own normal forms count as 1: they lengthen few characters, and each only once.

    Args:
        part: Name of the part of a tokenizer that has the steps, for errors.
        steps: Steps as in tokenizer.json, in order.

    Raises:
        ValueError: One sentence: the chain is too long to be judged.
    """
    replaced = [_Replacement.of(step) for step in steps if step.get("type") == "Replace"]
    characters = sum(len(one.literal or "") + len(one.content) for one in replaced)
    if len(steps) > _MOST_STEPS or characters > _MOST_CHARACTERS:
        raise ValueError(f"its {part} has {len(steps):,} steps with texts of {characters:,} characters")
    weights = _Weights({character: 1.0 for one in replaced for character in one.all})
    for step in reversed(steps):
        weights.go_back(step)
    return weights.largest


@attrs.frozen
class _Replacement:
    """A step that replaces what matches. `literal`: text that is replaced; None for a regular expression;
    `inserts`: True if the regular expression may match between two characters.
    """

    literal: str | None
    content: str
    inserts: bool = False

    @property
    def all(self) -> str:
        return (self.literal or "") + self.content

    @classmethod
    def of(cls, step: Mapping[str, Any]) -> _Replacement:
        pattern, content = step.get("pattern"), str(step.get("content", ""))
        literal = pattern.get("String") if isinstance(pattern, Mapping) else None
        if isinstance(literal, str) and literal:
            return cls(literal, content)
        expression = pattern.get("Regex") if isinstance(pattern, Mapping) else None
        return cls(None, content, not isinstance(expression, str) or _may_match_nothing(expression))


class _Weights:
    """Weights of characters before a step; `other` is the weight of all that no step names."""

    def __init__(self, named: dict[str, float]) -> None:
        self._of = {" ": 1.0, **named}
        self._other = 1.0

    @property
    def largest(self) -> float:
        return max(self._other, *self._of.values())

    def go_back(self, step: Mapping[str, Any]) -> None:
        """Change the weights to those before a step."""
        match kind := step.get("type"):
            case "Replace":
                self._replace(_Replacement.of(step))
            case "Lowercase":
                self._map(str.lower)
            case "BertNormalizer":
                self._raise_foreign(2 * self._of[" "])  # puts spaces around Chinese characters
            case "ByteLevel":
                # What is not ASCII becomes a character for each byte, which is not ASCII either.
                most = self.largest
                self._other = _BYTES * most
                for of, weight in self._of.items():
                    is_kept = of.isascii() and of.isprintable() and of != " "
                    self._of[of] = weight if is_kept else len(of.encode("utf-8", "surrogatepass")) * most
            case _ if kind in _FORMS:
                form = _FORMS[str(kind)]
                self._map(lambda character: unicodedata.normalize(form, character))

    def _replace(self, step: _Replacement) -> None:
        written = sum(self._of[character] for character in step.content)
        if step.literal is not None:
            for character in step.literal:
                self._of[character] = max(self._of[character], written / len(step.literal))
            return
        for character, weight in self._of.items():
            self._of[character] = weight + written if step.inserts else max(weight, written)
        self._other = self._other + written if step.inserts else max(self._other, written)

    def _map(self, of: Callable[[str], str]) -> None:
        self._of = {
            character: max(weight, sum(self._of.get(one, self._other) for one in of(character)))
            for character, weight in self._of.items()
        }

    def _raise_foreign(self, added: float) -> None:
        self._other += added
        self._of = {
            character: weight if character.isascii() else weight + added
            for character, weight in self._of.items()
        }


def _may_match_nothing(expression: str) -> bool:
    """Return whether a regular expression may match an empty text; True if Python cannot read it."""
    known = _CLASS.sub(r"\\w", expression)
    if len(known) > _LONGEST_PATTERN or _NESTED.search(known):
        return True
    parser: Any = importlib.import_module("re._parser")
    try:
        shortest: int = parser.parse(known).getwidth()[0]
    except (re.error, RecursionError, OverflowError, ValueError):
        return True
    return shortest == 0
