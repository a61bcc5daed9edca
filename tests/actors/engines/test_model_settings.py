"""Settings of single models, as opening and loading their files apply them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import attrs

from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.engine.adapters.adapter import Adapter
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.models.tiny_models import TinyModel


def opened(engines: Engines, name: str) -> OpenedModel:
    return engines.open_model(engines.fetch(name))


def adapter_of(engines: Engines, name: str) -> Adapter:
    return cast("Adapter", opened(engines, name).adapter)


def test_a_models_tables_hold_for_it_alone(tiny_model: TinyModel) -> None:
    folders = tiny_model("qwen3"), tiny_model("llama")
    settings = Settings(models=tuple(map(str, folders)), temperature=0.9)
    names = [folder.name for folder in folders]
    plain = Engines(settings)
    own = ModelSettings(max_context=64, kv_bits=8, temperature=0.2)
    engines = Engines(attrs.evolve(settings, model_settings=((names[0], own),)))
    (first, other), (usual, usual_other) = (
        tuple(adapter_of(each, name) for name in names) for each in (engines, plain)
    )
    assert (first.context_length, first.configured["temperature"]) == (64, 0.2)
    assert (other.context_length, other.configured["temperature"]) == (usual_other.context_length, 0.9)
    assert usual.context_length > 64
    quantized = Engines(attrs.evolve(settings, model_settings=((names[0], ModelSettings(kv_bits=8)),)))
    needs = [opened(each, name).need.granted for each in (quantized, plain) for name in names]
    assert needs[0] < needs[2]
    assert needs[1] == needs[3]


def test_a_models_own_chat_template_can_be_replaced(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, file = tiny_model("qwen3"), tmp_path / "short.jinja"
    file.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    table = (folder.name, ModelSettings(chat_template=str(file)))
    engines = Engines(Settings(models=(str(folder),), model_settings=(table,)))
    assert adapter_of(engines, folder.name).tokenizer.chat_template == file.read_text()
