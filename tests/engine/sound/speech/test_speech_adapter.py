"""Options of speech requests, and errors that name the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import attrs
import pytest
from openai.types.audio.speech_create_params import Voice

from greenroom.engine.sound.speech.abilities import SpeechAbilities
from greenroom.engine.sound.speech.speech_adapter import MAX_CHARACTERS, OPENAI_VOICES, SpeechAdapter
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.spoken_requests import open_adapter, spoken
from greenroom.tests.support.media.audio_files import wav_file
from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket

ANY = SpeechAbilities(
    "some_tts",
    voices=(),
    listed_voices=False,
    takes_voice=True,
    own_speed=True,
    instructions="instruct",
    language="lang_code",
    clones=False,
    reads_reference=False,
    streams=True,
)
"""Abilities of a model that lists no voices and supports every other option."""


@pytest.fixture(scope="module")
def adapter(tiny_pocket: Path) -> SpeechAdapter:
    return open_adapter(tiny_pocket)


def refused(adapter: SpeechAdapter, text: str = "Hello.", **fields: Any) -> tuple[str | None, str]:
    with pytest.raises(ProblemError) as caught:
        adapter.prepare_input(spoken(text, **fields))
    assert caught.value.problem.status == 400
    return caught.value.problem.param, caught.value.problem.detail


@pytest.mark.parametrize(
    ("text", "fields", "param", "said"),
    [
        ("", {}, "input", "no word"),
        (" \n\t", {}, "input", "no word"),
        ("?! … 🌊", {}, "input", "no word"),
        ("x" * (MAX_CHARACTERS + 1), {}, "input", "at most 16384"),
        ("Hi", {"voice": "nobody"}, "voice", "it has alba, default"),
        ("Hi", {"voice": "../default"}, "voice", "it has alba, default"),
        ("Hi", {"voice": "https://example.com/a.safetensors"}, "voice", "it has alba, default"),
        ("Hi", {"voice": "alba,default"}, "voice", "it has alba, default"),
        ("Hi", {"voice": "v" * 10_000}, "voice", "no voice"),
        ("Hi", {"speed": 0.2}, "speed", "from 0.25 to 4"),
        ("Hi", {"speed": 4.1}, "speed", "from 0.25 to 4"),
        ("Hi", {"speed": float("nan")}, "speed", "from 0.25 to 4"),
        ("Hi", {"instructions": "Whisper."}, "instructions", "cannot be told how"),
        ("Hi", {"language": "en"}, "language", "cannot be told a language"),
        ("Hi", {"reference": "/dev/null"}, "ref_audio", "cannot imitate"),
        ("Hi", {"reference_text": "Hello"}, "ref_text", "missing"),
    ],
)
def test_what_the_model_cannot_do_is_refused(
    adapter: SpeechAdapter, text: str, fields: dict[str, Any], param: str, said: str
) -> None:
    named, detail = refused(adapter, text, **fields)
    assert named == param
    assert said in detail


def test_another_kind_of_request_is_refused(adapter: SpeechAdapter) -> None:
    request = InferenceRequest("req_1", ModelKey("voice"), RawInput("Hello"))
    with pytest.raises(ProblemError) as caught:
        adapter.prepare_input(request)
    assert (caught.value.problem.status, caught.value.problem.param) == (400, "model")


@pytest.mark.parametrize("voice", [None, "", "default", "Default", "ALBA"])
def test_a_voice_is_found_whatever_its_case(adapter: SpeechAdapter, voice: str | None) -> None:
    assert adapter.prepare_input(spoken("Hi", voice=voice)).voice in (None, "default", "alba")


@pytest.mark.parametrize("voice", sorted(OPENAI_VOICES))
def test_a_voice_of_openai_is_left_to_the_model(adapter: SpeechAdapter, voice: str) -> None:
    assert adapter.prepare_input(spoken("Hi", voice=voice.capitalize())).voice is None
    assert SpeechAdapter("voice", ANY).prepare_input(spoken("Hi", voice=voice)).voice is None
    mute = attrs.evolve(ANY, takes_voice=False)
    assert SpeechAdapter("voice", mute).prepare_input(spoken("Hi", voice=voice)).voice is None
    assert refused(SpeechAdapter("voice", mute), voice="nobody")[0] == "voice"
    own = attrs.evolve(ANY, listed_voices=True, voices=("nobody", voice.upper()))
    assert SpeechAdapter("voice", own).prepare_input(spoken("Hi", voice=voice)).voice == voice.upper()


def test_the_names_of_voices_are_those_of_the_official_client() -> None:
    known = [each for each in get_args(Voice) if get_origin(each) is Literal]
    assert {name for each in known for name in get_args(each)} == OPENAI_VOICES


def test_a_model_that_lists_no_voices_gets_any_name_but_no_path() -> None:
    adapter = SpeechAdapter("voice", ANY)
    fields: dict[str, Any] = {"voice": "tara", "language": "en-GB", "instructions": "Softly", "speed": 2.0}
    prepared = adapter.prepare_input(spoken("Hi", **fields))
    assert (prepared.voice, prepared.language, prepared.instructions) == ("tara", "en-GB", "Softly")
    assert (prepared.speed, prepared.tempo) == (2.0, 1.0)
    for voice in ("/etc/passwd", "..", "a/b", "http://x", "a,b", "-x", "v" * 65, "a\n", "a.safetensors"):
        assert refused(adapter, voice=voice)[0] == "voice"
    assert refused(adapter, language="/etc")[0] == "language"
    assert refused(adapter, instructions="x" * 5_000)[0] == "instructions"


def test_a_model_without_files_of_voices_says_so(tmp_path: Path) -> None:
    adapter = open_adapter(make_tiny_pocket(tmp_path / "mute", voices=()))
    assert refused(adapter) == ("voice", "'mute' cannot speak: there are no files of voices in its folder.")


@pytest.fixture(scope="module")
def cloning(tmp_path_factory: pytest.TempPathFactory) -> SpeechAdapter:
    return open_adapter(make_tiny_pocket(tmp_path_factory.mktemp("speech") / "clone", clones=True))


def test_reference_audio_is_read_at_any_rate(cloning: SpeechAdapter, tmp_path: Path) -> None:
    path = tmp_path / "tone"
    path.write_bytes(wav_file(2.0, 44_100))
    reference = cloning.prepare_input(spoken("Hi", reference=str(path))).reference
    assert reference is not None
    asked = spoken("Hi", reference=str(path))
    voices = [cloning.prepare_input(attrs.evolve(asked, cache_salt=owner)).reference for owner in "aab"]
    alice, again, bob = (voice.digest for voice in voices if voice is not None)
    assert alice == again != bob  # what is computed of a cloned voice is kept for its owner
    path.write_bytes(wav_file(1.0, title=b"Caf\xe9"))
    assert cloning.prepare_input(spoken("Hi", reference=str(path))).reference is not None
    assert len(reference.samples) == pytest.approx(48_000, abs=100)
    assert cloning.prepare_input(spoken("Hi", voice="default", reference=str(path))).voice is not None
    assert cloning.prepare_input(spoken("Hi", voice="alloy", reference=str(path))).voice is None
    assert refused(cloning, voice="nobody", reference=str(path))[0] == "voice"
    assert refused(cloning, reference=str(path), reference_text="x" * 5_000)[0] == "ref_text"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"no audio at all " * 100, "can be decoded"),
        (wav_file(0.1), "shorter than"),
        (wav_file(61), "longer than 60"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile:///etc/passwd\n", "can be decoded"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "can be decoded"),
        (wav_file(1.0, rate=1), "1 samples a second"),
    ],
)
def test_what_is_no_recording_is_refused(
    cloning: SpeechAdapter, tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    param, detail = refused(cloning, reference=str(path))
    assert param == "ref_audio"
    assert said in detail
