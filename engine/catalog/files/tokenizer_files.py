"""Check that a model's folder holds a tokenizer: without one, transformers makes one with no vocabulary."""

from __future__ import annotations

import os
from pathlib import Path

_BEGINNINGS = ("tokenizer", "tokenization", "vocab", "merges", "tekken", "spiece", "sentencepiece")
_ENDS = (".tiktoken", ".model", ".spm", ".vocab")


def check_tokenizer_files(folder: Path) -> None:
    """Make sure that something in a model's folder is called as tokenizers are.

    Raises:
        ValueError: There is nothing.
    """
    if not any(name.startswith(_BEGINNINGS) or name.endswith(_ENDS) for name in os.listdir(folder)):
        raise ValueError("there is no tokenizer in its folder")
