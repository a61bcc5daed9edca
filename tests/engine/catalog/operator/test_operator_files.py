"""Tests of files that the settings name: their models, and unusable ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.operator import MAX_BYTES, find_bad_file, system_prompt_of
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import ModelSettings, Settings


def test_a_models_own_system_prompt_goes_before_everybodys(tmp_path: Path) -> None:
    for name, text in (("all", "Be brief.\n"), ("own", "\ufeffSpeak Latin.\n\n"), ("none", "\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    own, none = (ModelSettings(system_prompt=str(tmp_path / name)) for name in ("own", "none"))
    tables = (("org/latin*", own), ("org/bare", none))
    settings = Settings(system_prompt=str(tmp_path / "all"), model_settings=tables)
    assert system_prompt_of("org/latin-4bit", settings) == "Speak Latin."
    assert system_prompt_of("org/other", settings) == "Be brief."
    assert system_prompt_of("org/bare", settings) == ""
    assert system_prompt_of("org/other", Settings()) == ""
    assert find_bad_file(settings) is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"a" * (MAX_BYTES + 1), "longer than"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "prompt"
    if content is not None:
        file.write_bytes(content)
    assert complaint in (find_bad_file(Settings(system_prompt=str(file))) or "")
    settings = Settings(model_settings=(("org/*", ModelSettings(system_prompt=str(file))),))
    assert (find_bad_file(settings) or "").startswith('model."org/*".system_prompt: the file')
    with pytest.raises(ProblemError, match=complaint):
        system_prompt_of("org/model", settings)
