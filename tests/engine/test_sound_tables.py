"""The tables of speech and transcription models cover every architecture of mlx-audio, and are correct."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from greenroom.engine.sound.transcription import recognizers
from greenroom.tests.support.sound import listening_trials
from greenroom.tests.support.sound.listening_kinds import LISTENING_KINDS
from greenroom.tests.support.sound.listening_trials import hear, listening_architectures
from greenroom.tests.support.sound.outcomes import Outcome, outcomes_of, table_of
from greenroom.tests.support.sound.sound_tables import (
    SPEECH,
    TRANSCRIPTION,
    speech_outcomes,
    transcription_outcomes,
)
from greenroom.tests.support.sound.speaking_trials import speaking_architectures

FIRST = ("vibevoice_asr", "voxtral_realtime")
"""Architectures compared by default, since they are popular; `make soak` compares the others."""


@pytest.mark.parametrize(
    ("page", "names"),
    [(SPEECH, speaking_architectures()), (TRANSCRIPTION, listening_architectures())],
    ids=["speech", "transcription"],
)
def test_each_table_names_every_architecture_of_the_installed_library(page: Path, names: list[str]) -> None:
    text = page.read_text(encoding="utf-8")
    rows = outcomes_of(text)
    assert sorted(rows) == names
    assert "broken" not in [row.word for row in rows.values()]
    assert f"with mlx-audio {version('mlx-audio')}:" in text, "run make sound-table"


def test_a_table_reads_as_it_was_written() -> None:
    outcomes = {"one": Outcome("equal"), "two": Outcome("refused", "because | of\nthis")}
    read = {"one": Outcome("equal"), "two": Outcome("refused", "because | of this")}
    assert outcomes_of(table_of("head", outcomes)) == read
    assert table_of("head", read) == table_of("head", outcomes)


@pytest.mark.deep
@pytest.mark.parametrize("architecture", FIRST)
def test_it_writes_down_what_mlx_audio_does(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (recognizers, listening_trials):  # tiny models never end on their own
        monkeypatch.setattr(module, "MOST_TOKENS", 40)
    assert hear(architecture, tmp_path) == Outcome("equal")


@pytest.mark.soak
@pytest.mark.parametrize("architecture", sorted(LISTENING_KINDS))
def test_all_do_at_full_length(architecture: str, tmp_path: Path) -> None:
    assert hear(architecture, tmp_path).word == "equal"


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_both_tables_still_hold() -> None:
    def words(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
        return {name: outcome.word for name, outcome in outcomes.items()}

    spoken, heard = (words(outcomes_of(page.read_text(encoding="utf-8"))) for page in (SPEECH, TRANSCRIPTION))
    assert words(speech_outcomes(spoken)) == spoken
    assert words(transcription_outcomes(heard)) == heard
