"""Check that a model's folder holds a tokenizer: without one, transformers would create an empty one."""

from __future__ import annotations

import os
from pathlib import Path

_BEGINNINGS = ("tokenizer", "tokenization", "vocab", "merges", "tekken", "spiece", "sentencepiece")
_ENDS = (".tiktoken", ".model", ".spm", ".vocab")


def check_tokenizer_files(folder: Path) -> None:
    """Check that a model's folder has a file with a tokenizer's usual name.

    Raises:
        ValueError: There is no such file.
    """
    if not any(name.startswith(_BEGINNINGS) or name.endswith(_ENDS) for name in os.listdir(folder)):
        raise ValueError("there is no tokenizer in its folder")
