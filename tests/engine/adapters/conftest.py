"""Fixtures for adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_adapters import FAMILY_OF_TEMPLATE, Folder, MakeAdapter
from greenroom.tests.support.templates.chat_tokenizers import make_chat_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return `folder(name)`: a tokenizer folder with that template; keywords change its configuration."""
    import_text_libraries()

    def make(name: str, **changes: Any) -> Path:
        return make_chat_tokenizer(name, tmp_path_factory.mktemp(name), **changes)

    return make


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> MakeAdapter:
    """Return `adapter(name)`: an adapter of a model with that template; keywords are settings."""
    import_text_libraries()
    home = tmp_path_factory.mktemp("tokenizers")
    folders: dict[str, Path] = {}

    def make(
        name: str, context: int = 4096, record: dict[str, Any] | None = None, **settings: Any
    ) -> Adapter:
        if name not in folders:
            folders[name] = make_chat_tokenizer(name, home / name)
        family: Any = FAMILY_OF_TEMPLATE.get(name, name)
        capabilities = CapabilityRecord("text", family, "llama", context, **(record or {}))
        return make_adapter(capabilities, load_tokenizer(folders[name]), Settings(**settings))

    return make
