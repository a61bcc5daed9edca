"""Differences between settings: those that a running server takes in, and those that need a restart."""

from __future__ import annotations

import attrs
import pytest

from greenroom.schemas.settings.settings import (
    RELOADABLE,
    ModelSettings,
    Settings,
    Source,
    compare,
    opens_otherwise,
)


def test_every_reloadable_setting_exists() -> None:
    assert set(RELOADABLE) <= attrs.fields_dict(Settings).keys()


def test_only_what_can_be_taken_in_comes_into_force() -> None:
    before = Settings(port=8000, log_level="info", origins=(("port", "file"),))
    origins: tuple[tuple[str, Source], ...] = (("log_level", "file"),)
    read = Settings(port=9000, log_level="debug", allowed_hosts=("a.example",), origins=origins)
    change = compare(before, read)
    assert change.applied == ("allowed_hosts", "log_level")
    assert change.needs_restart == ("port",)
    assert (change.settings.port, change.settings.log_level) == (8000, "debug")
    assert dict(change.settings.origins) == {"port": "file", "log_level": "file"}


def test_equal_settings_are_no_change() -> None:
    change = compare(Settings(), Settings(origins=(("port", "flag"),)))
    assert (change.applied, change.needs_restart) == ((), ())


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (ModelSettings(kv_bits=8), True),
        (ModelSettings(tool_parser="hermes"), True),
        (ModelSettings(alias=("other",)), False),
        (ModelSettings(ttl=5.0, pinned=True, preload=True), False),
        (ModelSettings(), False),
    ],
)
def test_a_model_is_opened_anew_for_what_it_was_opened_with(changed: ModelSettings, expected: bool) -> None:
    before, now = Settings(), Settings(model_settings=(("one", changed),))
    assert opens_otherwise(before, now, "one") is expected
    assert opens_otherwise(before, now, "another") is False
