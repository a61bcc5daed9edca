"""Speech computed piece by piece, for several requests in fair turns."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.sound.speech.speech_engine import SpeechEngine
from greenroom.engine.sound.speech.utterance import FADE_SECONDS
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.tests.support.engines.spoken_requests import open_adapter, open_engine, run, samples_of, spoken
from greenroom.tests.support.media.audio_files import wav_file
from greenroom.tests.support.models.tiny_speech_models import FRAME_SAMPLES, SAMPLE_RATE, make_tiny_pocket

Events = list[tuple[str, InferenceEvent]]

SENTENCES = (
    "One. This second sentence is long enough to be spoken on its own, without another. Three and four."
)


@pytest.fixture(scope="module")
def engine(tiny_pocket: Path) -> SpeechEngine:
    return open_engine(tiny_pocket)


def submit(engine: SpeechEngine, folder: Path, ident: str, text: str, **fields: Any) -> None:
    request = spoken(text, ident, **fields)
    engine.submit(request, open_adapter(folder).prepare_input(request))


def finish_of(events: Events, ident: str) -> Finished:
    [event] = [event for name, event in events if name == ident and isinstance(event, Finished | Failed)]
    assert isinstance(event, Finished), event
    return event


@pytest.mark.deep
def test_a_piece_sounds_as_the_library_speaks_it(tiny_pocket: Path) -> None:
    from mlx_audio.tts.utils import load_model

    model = load_model(tiny_pocket, model_type="pocket_tts", model_name_parts=[])
    engine = open_engine(tiny_pocket)  # a voice that was read before leaves other random numbers
    for voice in ("alba", None):
        mx.random.seed(3)
        [expected] = model.generate("The sea is calm tonight.", voice=voice)
        mx.random.seed(3)
        submit(engine, tiny_pocket, "req_1", "The sea is calm tonight.", voice=voice)
        events = list(run(engine))
        heard = samples_of(events)
        assert len(heard) == 87 * FRAME_SAMPLES
        assert np.abs(heard / 32767 - np.array(expected.audio)).max() < 1e-4
        usage = finish_of(events, "req_1").usage
        assert (usage.generated, usage.spoken) == (87, len(heard) / SAMPLE_RATE)
        assert usage.prompt > 0


def test_the_first_frame_is_handed_over_before_the_next_is_waited_for(
    engine: SpeechEngine, tiny_pocket: Path
) -> None:
    submit(engine, tiny_pocket, "req_1", "The sea is calm tonight.")
    sounds = (event for _, event in run(engine) if isinstance(event, AudioChunk))
    first, *later = [len(sound.samples) // 2 for sound in sounds]
    assert first == FRAME_SAMPLES - round(FADE_SECONDS * SAMPLE_RATE)
    assert first + sum(later) == 87 * FRAME_SAMPLES


@pytest.mark.deep
def test_voices_differ_and_a_voice_is_read_once(engine: SpeechEngine, tiny_pocket: Path) -> None:
    heard = []
    for voice in ("alba", "default", "ALBA"):
        mx.random.seed(3)
        submit(engine, tiny_pocket, "req_1", "Hello.", voice=voice)
        heard.append(samples_of(list(run(engine))))
    assert (heard[0] != heard[1]).any()
    assert len(heard[0]) == len(heard[2])


@pytest.mark.deep
def test_requests_take_turns_piece_by_piece(engine: SpeechEngine, tiny_pocket: Path) -> None:
    submit(engine, tiny_pocket, "long", SENTENCES, client="a")
    submit(engine, tiny_pocket, "also long", SENTENCES, client="a")
    submit(engine, tiny_pocket, "short", "Hi.", client="b")
    events = list(run(engine))
    order = [name for name, event in events if isinstance(event, AudioChunk)]
    turns = [name for name, _ in itertools.groupby(order)]
    assert "short" in turns[:2]
    assert [name for name in turns if name != "short"][:4] == ["long", "also long"] * 2
    pieces = {name: len(samples_of(events, name)) for name in ("long", "also long")}
    assert pieces["long"] == pieces["also long"]


@pytest.mark.parametrize("client", ["other", "same"])
def test_a_short_text_that_comes_late_is_spoken_behind_the_piece_under_way(
    tiny_pocket: Path, client: str
) -> None:
    engine = open_engine(tiny_pocket)
    for number in range(6):
        owner = "same" if client == "same" else f"client {number}"
        submit(engine, tiny_pocket, f"{number}", "Long. " * 40, client=owner)
    events = [*engine.step()]
    submit(engine, tiny_pocket, "short", "Hi.", client=client)
    while not any(name == "short" and isinstance(event, Finished) for name, event in events):
        events += engine.step()
    assert {name for name, event in events if isinstance(event, AudioChunk)} == {"0", "short"}
    engine.close()


@pytest.mark.deep
def test_a_text_is_spoken_on_by_the_next_engine_from_the_piece_that_follows(
    tiny_pocket: Path,
) -> None:
    first, following = open_engine(tiny_pocket), open_engine(tiny_pocket)
    for name in ("begun", "waiting"):
        submit(first, tiny_pocket, name, SENTENCES, speed=2.0)
    events = [*first.step()]
    assert first.suspend() is None, "a piece is begun"
    while (suspended := first.suspend()) is None:
        events += first.step()
    assert not first.has_work
    assert {name for name, event in events if isinstance(event, AudioChunk)} == {"begun"}
    first.close()
    for utterance in suspended.values():
        following.resume(utterance)
    events += run(following)
    submit(following, tiny_pocket, "alone", SENTENCES, speed=2.0)
    alone = len(samples_of(list(run(following)), "alone"))
    for name in ("begun", "waiting"):
        assert len(samples_of(events, name)) == alone
        assert finish_of(events, name).usage.spoken == alone / SAMPLE_RATE


def test_what_a_crash_need_not_concern_is_what_nothing_was_spoken_of(tiny_pocket: Path) -> None:
    engine = open_engine(tiny_pocket)
    for name in ("begun", "waiting"):
        submit(engine, tiny_pocket, name, SENTENCES)
    engine.step()
    assert set(engine.unbegun()) == {"waiting"}
    engine.close()


@pytest.mark.deep
def test_another_key_of_the_same_address_is_no_other_client(engine: SpeechEngine, tiny_pocket: Path) -> None:
    for name, client in (("first", "a#key"), ("second", "a#made up"), ("other", "b")):
        submit(engine, tiny_pocket, name, "Hi.", client=client)
    order = [name for name, event in run(engine) if isinstance(event, AudioChunk)]
    assert [name for name, _ in itertools.groupby(order)] == ["first", "other", "second"]


def test_a_cancelled_request_ends_at_the_next_step(engine: SpeechEngine, tiny_pocket: Path) -> None:
    submit(engine, tiny_pocket, "gone", "A long text that nobody listens to any more, and it goes on and on.")
    submit(engine, tiny_pocket, "waiting", "Nobody waits for this.")
    submit(engine, tiny_pocket, "stays", "Hello.")
    engine.step()
    for name in ("gone", "waiting", "unknown"):
        engine.cancel(name)
    events = engine.step()
    gone, waiting = finish_of(events, "gone"), finish_of(events, "waiting")
    assert (gone.reason, waiting.reason) == ("cancelled", "cancelled")
    assert 0 < gone.usage.spoken < 15
    assert waiting.usage.spoken == 0
    rest = events + list(run(engine))
    assert len(samples_of(rest, "stays")) == 37 * FRAME_SAMPLES
    assert "gone" not in [name for name, event in rest if isinstance(event, AudioChunk)]


def test_speed_is_a_matter_of_tempo_for_models_that_have_one(engine: SpeechEngine, tiny_pocket: Path) -> None:
    for speed, seconds in ((2.0, 1.48), (0.25, 11.84)):
        submit(engine, tiny_pocket, "req_1", "Hello.", speed=speed)
        events = list(run(engine))
        assert len(samples_of(events)) / SAMPLE_RATE == pytest.approx(seconds, rel=0.05)
        assert finish_of(events, "req_1").usage.spoken == len(samples_of(events)) / SAMPLE_RATE


@pytest.mark.deep
def test_a_recording_is_imitated(tmp_path: Path) -> None:
    folder = make_tiny_pocket(tmp_path / "clone", clones=True)
    recording = tmp_path / "recording.wav"
    recording.write_bytes(wav_file(1.0, 44_100))
    engine = open_engine(folder)
    heard = []
    for fields in ({}, {"reference": str(recording)}, {"reference": str(recording), "reference_text": "La"}):
        mx.random.seed(3)
        submit(engine, folder, "req_1", "Hello.", **fields)
        heard.append(samples_of(list(run(engine))))
    assert len(heard[0]) == len(heard[1]) == len(heard[2]) > 0
    assert (heard[0] != heard[1]).any()
    engine.close()


def test_what_is_no_sound_fails_its_request_alone(tmp_path: Path) -> None:
    folder = make_tiny_pocket(tmp_path / "broken")
    broken = {"audio_prompt": mx.full((1, 4, 64), mx.nan)}
    mx.save_safetensors(str(folder / "voices" / "noise.safetensors"), broken)
    engine = open_engine(folder)
    submit(engine, folder, "bad", "Hello.", voice="noise")
    submit(engine, folder, "good", "Hello.", voice="default")
    events = list(run(engine))
    [failed] = [event for name, event in events if name == "bad"]
    assert isinstance(failed, Failed)
    assert failed.problem.code == "model_broken"
    assert finish_of(events, "good").reason == "stop"
    engine.close()


def test_what_a_library_raises_fails_the_request(tmp_path: Path) -> None:
    folder = make_tiny_pocket(tmp_path / "odd")
    mx.save_safetensors(str(folder / "voices" / "odd.safetensors"), {"audio_prompt": mx.zeros((1, 4, 5))})
    engine = open_engine(folder)
    submit(engine, folder, "bad", "Hello.", voice="odd")
    [(_, failed)] = list(run(engine))
    assert isinstance(failed, Failed)
    assert (failed.problem.status, failed.problem.code) == (400, "invalid_value")
    assert "shape" in failed.problem.detail
    engine.close()


def test_a_library_that_a_voice_needs_is_named(
    tiny_pocket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some architectures decode the voice recordings in their folders only when they first speak."""
    from mlx_audio.audio_io import read
    from mlx_audio.tts.models.pocket_tts.pocket_tts import Model

    recording = tmp_path / "voice.wav"
    recording.write_bytes(wav_file(0.1))
    engine = open_engine(tiny_pocket)
    monkeypatch.setattr(Model, "generate_audio_stream", lambda *_, **__: iter([read(str(recording))]))
    monkeypatch.setitem(sys.modules, "miniaudio", None)
    submit(engine, tiny_pocket, "bad", "Hello.")
    [(_, failed)] = list(run(engine))
    assert isinstance(failed, Failed)
    assert (failed.problem.status, failed.problem.code) == (501, "library_missing")
    assert failed.problem.detail.endswith("pip install miniaudio")
    engine.close()


@pytest.mark.deep
def test_memory_is_charged_while_there_is_speech(tiny_pocket: Path) -> None:
    account = MemoryAccount(64 << 20)
    engine = open_engine(tiny_pocket, account)
    assert 100_000 < account.statistics().weights < 10_000_000
    submit(engine, tiny_pocket, "req_1", "Hello. Hello again, and again, and once more after that, my dear.")
    engine.step()
    assert account.statistics().running == 32 << 20
    list(run(engine))
    assert account.statistics().running == 0
    account.limit = 16 << 20
    submit(engine, tiny_pocket, "req_2", "Hello.")
    [(_, failed)] = list(run(engine))
    assert isinstance(failed, Failed)
    assert (failed.problem.status, failed.problem.code) == (507, "insufficient_memory")
    submit(engine, tiny_pocket, "req_3", "Hello.")
    engine.close()
    assert account.statistics().weights == 0
