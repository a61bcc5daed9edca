"""Checks of tokenizers that expand texts without a limit before they tokenize them.

Anybody may have written a tokenizer's normalizer. Nine chained replacements of one character with ten turn
ten letters into 10 GB.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any

from greenroom.engine.tokenizer.growth_factor import growth_factor

_MOST_TIMES = 8
"""Largest growth factor of a text; real tokenizers replace a character with one or three."""

_LONGEST_ADDED = 64
"""Limit on the characters added before a text or substituted for one character by a table."""

_MOST_ADDED_TOKENS = 1_000
"""Limit on the tokens added around every text."""


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
    """Check a tokenizer that was loaded from other files than tokenizer.json.

    Raises:
        ValueError: As in `check_growth`.
    """
    parts = {name: getattr(backend, name, None) for name in ("normalizer", "decoder", "post_processor")}
    check_growth({name: json.loads(part.__getstate__()) for name, part in parts.items() if part is not None})


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a part in order, including nested ones."""
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
