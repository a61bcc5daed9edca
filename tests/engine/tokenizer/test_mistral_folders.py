"""Folders with tekken.json beside tokenizer.json, where mistral-common is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.tests.support.templates.chat_tokenizers import make_chat_tokenizer


def test_the_tokenizer_is_read_from_the_file_that_can_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_text_libraries()
    from transformers.integrations.mistral import tokenizer as integration
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    folder = make_chat_tokenizer("mistral", tmp_path / "mistral")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mistral"}))
    (folder / "tekken.json").write_text("{}")
    # As transformers finds it with the package installed.
    monkeypatch.setitem(TOKENIZER_MAPPING_NAMES, "mistral", "MistralCommonBackend")
    monkeypatch.setattr(integration, "is_mistral_common_available", lambda: True)
    tokenizer = load_tokenizer(folder)
    assert type(tokenizer.wrapped._tokenizer).__name__ == "TokenizersBackend"
    assert tokenizer.render([{"role": "user", "content": "hi"}]).endswith("[INST] hi[/INST]")
