"""Lookup of a model's settings: full names, patterns, and the server's settings that they replace."""

from __future__ import annotations

from greenroom.schemas.settings.settings import ModelSettings, Settings

TABLES = (
    ("org/*", ModelSettings(kv_bits=4, ttl=60.0, pinned=True)),
    ("*", ModelSettings(kv_bits=8, ttl=30.0, temperature=0.5)),
    ("org/model", ModelSettings(ttl=10.0, pinned=False)),
)


def test_a_full_name_beats_a_pattern_and_the_first_pattern_the_second() -> None:
    settings = Settings(model_settings=TABLES)
    assert settings.of_model("org/model") == ModelSettings(kv_bits=4, ttl=10.0, pinned=False, temperature=0.5)
    assert settings.of_model("org/other") == ModelSettings(kv_bits=4, ttl=60.0, pinned=True, temperature=0.5)
    assert settings.of_model("local") == ModelSettings(kv_bits=8, ttl=30.0, temperature=0.5)
    assert Settings().of_model("local") == ModelSettings()


def test_a_models_settings_take_the_place_of_the_servers() -> None:
    settings = Settings(temperature=1.0, max_context=4096, model_settings=TABLES)
    applied = settings.applied_to("org/model")
    assert (applied.temperature, applied.kv_bits, applied.max_context) == (0.5, 4, 4096)
    assert Settings(temperature=1.0).applied_to("org/model") == Settings(temperature=1.0)
