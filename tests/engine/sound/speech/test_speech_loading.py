"""Loading of speech models from their folders."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.loading.libraries import LoadAbandonedError
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.sound.speech.speech_engine import open_speech_adapter, open_speech_engine
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.spoken_requests import open_adapter, open_engine, run, samples_of, spoken
from greenroom.tests.support.models.tiny_speech_models import make_tiny_kokoro


@pytest.fixture
def copied(tiny_pocket: Path, tmp_path: Path) -> Path:
    # From this name, the library would guess another architecture.
    return Path(shutil.copytree(tiny_pocket, tmp_path / "kokoro-outetts-82m"))


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def failure(folder: Path, account: MemoryAccount | None = None) -> Problem:
    account = account or MemoryAccount()
    with pytest.raises(ProblemError) as caught:
        open_engine(folder, account)
    assert account.statistics().weights == 0
    return caught.value.problem


def test_the_architecture_is_that_of_the_config_whatever_the_folder_is_called(copied: Path) -> None:
    engine = open_engine(copied)
    request = spoken("Hello.")
    engine.submit(request, open_adapter(copied).prepare_input(request))
    assert len(samples_of(list(run(engine)))) > 0
    engine.close()


def test_a_config_without_a_type_is_told_by_its_parts(copied: Path) -> None:
    path = copied / "config.json"
    config = json.loads(path.read_text())
    del config["model_type"]
    path.write_text(json.dumps(config))
    open_engine(copied).close()


@pytest.mark.parametrize("address", ["hf://nobody/nothing/tokenizer.model", "http://127.0.0.1:9/t.model"])
def test_what_its_folder_lacks_is_not_fetched(copied: Path, address: str) -> None:
    (copied / "tokenizer.json").unlink()
    config = json.loads((copied / "config.json").read_text())
    config["flow_lm"]["lookup_table"]["tokenizer_path"] = address
    change_config(copied, **config)
    problem = failure(copied)
    assert (problem.status, problem.code) == (503, "load_failed")
    assert "needs files that its folder does not have" in problem.detail


def test_a_torn_or_missing_file_is_named(copied: Path) -> None:
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors is no whole" in failure(copied).detail
    with pytest.raises(ProblemError, match=r"model\.safetensors is no whole"):
        open_adapter(copied)
    weights.unlink()
    assert "no weights" in failure(copied).detail


def test_weights_that_do_not_fit_are_not_read(copied: Path) -> None:
    problem = failure(copied, MemoryAccount(100_000))
    assert (problem.status, problem.code) == (507, "insufficient_memory")


def test_a_load_can_be_abandoned(copied: Path) -> None:
    record = CapabilityRecord("speech", "default", "pocket_tts", 0)
    account = MemoryAccount()
    with pytest.raises(LoadAbandonedError):
        open_speech_engine(ModelLoad(copied, record, Settings(), is_abandoned=lambda: True, account=account))
    assert account.statistics().weights == 0


def test_an_architecture_that_nobody_knows_is_a_failed_load(copied: Path) -> None:
    with pytest.raises(ProblemError) as caught:
        open_speech_adapter(copied, CapabilityRecord("speech", "default", "no_such_tts", 0), "voice")
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "load_failed")


def test_a_missing_library_is_named_with_the_line_that_installs_it(tmp_path: Path) -> None:
    if importlib.util.find_spec("misaki") is not None:
        pytest.skip("misaki is installed")
    folder = tmp_path / "kokoro"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "kokoro"}))
    (folder / "voices").mkdir()
    (folder / "voices" / "af_heart.safetensors").touch()
    adapter = open_adapter(folder)
    lines = {
        "en": 'pip install "misaki[en]" && python -m spacy download en_core_web_sm (Python 3.12 or older)',
        "es": "pip install misaki phonemizer-fork espeakng-loader (Python 3.12 or older)",
        "ja": 'pip install "misaki[ja]" (Python 3.12 or older)',
    }
    for language, line in lines.items():
        with pytest.raises(ProblemError) as caught:
            adapter.prepare_input(spoken("Hello.", language=language))
        assert (caught.value.problem.status, caught.value.problem.code) == (501, "library_missing")
        assert line in caught.value.problem.detail
    with pytest.raises(ProblemError) as caught:
        adapter.prepare_input(spoken("Hello.", language="tlh"))
    assert caught.value.problem.param == "language"


@pytest.mark.parametrize(
    ("architecture", "module", "line"),
    [
        ("kitten_tts", "phonemizer", "pip install phonemizer-fork"),
        ("melotts", "g2p_en", "pip install g2p_en"),
        ("voxtral_tts", "mistral_common", 'pip install "mistral-common[audio]"'),
    ],
)
def test_a_library_for_text_is_missed_before_the_first_text(
    tmp_path: Path, architecture: str, module: str, line: str
) -> None:
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": architecture}))
    with pytest.raises(ProblemError) as caught:
        open_speech_adapter(tmp_path, CapabilityRecord("speech", "default", architecture, 0), "voice")
    assert (caught.value.problem.status, caught.value.problem.code) == (501, "library_missing")
    assert caught.value.problem.detail.endswith(line)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_kokoro_speaks_where_its_library_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("misaki.en")
    folder = make_tiny_kokoro(tmp_path / "kokoro")
    adapter, engine = open_adapter(folder), open_engine(folder)
    lengths = []
    for fields in (
        {},
        {"voice": "af_heart,bf_emma"},
        {"voice": "bf_emma", "language": "en-GB"},
        {"speed": 2.0},
    ):
        request = spoken("Hello, world. This is a sentence.", **fields)
        engine.submit(request, adapter.prepare_input(request))
        lengths.append(len(samples_of(list(run(engine)))))
    assert all(lengths)
    assert lengths[3] < lengths[0]
    engine.close()
