"""Fixtures that all rooms share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# MLX compiles kernels with g++ on the CPU: half a second each, which tests would pay over and over.
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model(kind)` is the folder of that kind's tiny model, made once per session.

    `tiny_model(kind, vocab_size=…)` makes one whose config.json differs in those fields.
    """
    from greenroom.tests.support.tiny_models import make_tiny_model, make_tokenizer

    home = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def folder_of(kind: str, **changes: Any) -> Path:
        name = "-".join([kind, *(f"{field}={changes[field]}" for field in sorted(changes))])
        if not (home / "tokenizer.json").exists():
            make_tokenizer(home)
        if name not in made:
            made[name] = make_tiny_model(kind, home / name, home, **changes)
        return made[name]

    return folder_of


@pytest.fixture(scope="session")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny models' tokenizer as grammars see it, with a compiler and random walks."""
    from tokenizers import Tokenizer

    from greenroom.engine.grammar.compiler import GrammarCompiler
    from greenroom.engine.grammar.tokens import GrammarTokenizer
    from greenroom.tests.support.grammar_walks import END, Grammars
    from greenroom.tests.support.tiny_models import make_tokenizer

    folder = tmp_path_factory.mktemp("grammars")
    make_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    assert end is not None
    known = GrammarTokenizer(tokenizer, [end])
    return Grammars(known, GrammarCompiler(known), tokenizer.to_str())
