"""`POST /v1/audio/speech` with the official client, and as raw HTTP."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import structlog

from greenroom.actors.engines.engines import Engines
from greenroom.http.guard import multipart_forms
from greenroom.http.guard.multipart_forms import UploadFolder
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.clients.openai_clients import ask, ask_together
from greenroom.tests.support.clients.web_socket_clients import until_closed
from greenroom.tests.support.engines.watched_engines import WatchedEngines
from greenroom.tests.support.media.audio_files import decode, wav_file
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

PATH = "/v1/audio/speech"
TEXT = "The sea. The tide."
SECONDS = 8.0
"""Duration of `TEXT` in seconds: two text chunks of two words, each with two seconds more."""
FRAMES = 100
"""Frames of 80 ms in `TEXT`'s audio."""
LONG = f"{TEXT} " * 20
LONG_SECONDS = 80.0
"""Minimum duration of `LONG` in seconds: one for each word."""

FORMS = {
    "mp3": ("mp3", "mp3", "audio/mpeg"),
    "opus": ("ogg", "opus", "audio/ogg"),
    "aac": ("aac", "aac", "audio/aac"),
    "flac": ("flac", "flac", "audio/flac"),
    "wav": ("wav", "pcm_s16le", "audio/wav"),
}


@pytest.fixture
async def served(tiny_pocket: Path) -> AsyncIterator[Served]:
    async with serving(Settings(models=(str(tiny_pocket),), shutdown_timeout=60.0)) as server:
        yield server


def create(client: openai.OpenAI, **fields: Any) -> Any:
    return client.audio.speech.create(**{"model": "default", "voice": "alba", "input": TEXT, **fields})


@pytest.mark.deep
async def test_each_form_decodes_to_the_right_length(served: Served) -> None:
    def speak(form: str) -> Callable[[openai.OpenAI], Any]:
        return lambda client: create(client, response_format=form, input="The sea.")

    for (form, stated), answer in zip(
        FORMS.items(), await ask_together(served, *map(speak, FORMS)), strict=True
    ):
        heard = decode(answer.content)
        assert (heard.format, heard.codec, answer.response.headers["content-type"]) == stated
        assert heard.seconds == pytest.approx(4.0, abs=0.15), form
        assert abs(heard.samples).max() > 0.001
    pcm = await ask(served, lambda client: create(client, response_format="pcm", voice={"id": "alba"}))
    assert len(pcm.content) == SECONDS * 24_000 * 2


async def test_a_voice_of_openai_is_the_models_own_choice(served: Served) -> None:
    def speak(voice: str) -> Callable[[openai.OpenAI], Any]:
        return lambda client: create(client, voice=voice, response_format="pcm", input="Hi")

    with structlog.testing.capture_logs() as logs:
        own, alloy = await ask_together(served, speak("default"), speak("alloy"))
    assert len(alloy.content) == len(own.content) > 0
    (left,) = [log for log in logs if log["event"] == "voice left to the model"]
    assert (left["voice"], left["model"]) == ("alloy", "tiny-voice")

    def speak_as_nobody(client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="it has alba, default"):
            create(client, voice="nobody")

    await ask(served, speak_as_nobody)


@pytest.mark.deep
async def test_streamed_speech_has_no_length_in_advance_and_is_whole(served: Served) -> None:
    def listen(client: openai.OpenAI) -> tuple[str | None, bytes]:
        streaming = client.audio.speech.with_streaming_response
        with streaming.create(model="default", voice="alba", input=TEXT) as answer:
            return answer.headers.get("content-length"), b"".join(answer.iter_bytes())

    length, content = await ask(served, listen)
    assert length is None
    assert decode(content).seconds == pytest.approx(SECONDS, abs=0.15)


async def test_whoever_hangs_up_at_the_first_byte_has_had_less_than_a_quarter_spoken(
    tiny_pocket: Path,
) -> None:
    settings = Settings(models=(str(tiny_pocket),), shutdown_timeout=60.0)
    engines = WatchedEngines(settings, stops=True)
    body = json.dumps({"model": "default", "input": LONG, "response_format": "pcm"}).encode()
    with structlog.testing.capture_logs() as logs:
        async with serving(settings, engines=engines) as served:
            async with connected(served.server) as client:
                await client.request("POST", PATH, body)
                head = await client.read_until(b"\r\n\r\n")
                assert b"200" in head.splitlines()[0]
                await client.read_until(b"\r\n")
                engine = await engines.standing()
            await until_closed(served)
            engine.go_on.set()
            assert decode((await ask(served, lambda client: create(client, input="Hi"))).content).seconds > 2
    ended, _ = (log for log in logs if log["event"] == "request finished")
    assert ended["reason"] == "cancelled"
    assert 0 < ended["spoken_seconds"] < LONG_SECONDS / 4


@pytest.mark.deep
async def test_events_carry_the_file_and_the_usage(served: Served) -> None:
    answer = await fetch(
        served.server,
        "POST",
        PATH,
        {"model": "default", "input": TEXT, "stream_format": "sse", "response_format": "flac"},
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    heard = decode(b"".join(base64.b64decode(event["audio"]) for event in events[:-1]))
    assert heard.seconds == pytest.approx(SECONDS)
    assert events[-1]["type"] == "speech.audio.done"
    usage = events[-1]["usage"]
    assert usage["seconds"] == SECONDS
    assert (usage["output_tokens"], usage["total_tokens"]) == (FRAMES, usage["input_tokens"] + FRAMES)


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"input": ""}, "input"),
    ({"input": None}, "input"),
    ({"input": ["Hi"]}, "input"),
    ({"input": "x" * 20_000}, "input"),
    ({"model": ""}, "model"),
    ({"voice": 5}, "voice"),
    ({"voice": {"name": "alba"}}, "voice"),
    ({"voice": "nobody"}, "voice"),
    ({"response_format": "ogg"}, "response_format"),
    ({"response_format": 3}, "response_format"),
    ({"stream_format": "ws"}, "stream_format"),
    ({"speed": 0.1}, "speed"),
    ({"speed": "fast"}, "speed"),
    ({"speed": 1e308}, "speed"),
    ({"instructions": "Sing."}, "instructions"),
    ({"language": "en"}, "language"),
    ({"language": "en", "lang_code": "fr"}, "lang_code"),
    ({"ref_audio": "no base64!"}, "ref_audio"),
    ({"ref_audio": base64.b64encode(wav_file(1)).decode()}, "ref_audio"),
    ({"ref_text": "Hello"}, "ref_text"),
)


async def test_bad_fields_are_named(served: Served) -> None:
    for fields, param in BAD:
        answer = await fetch(served.server, "POST", PATH, {"model": "default", "input": "Hi", **fields})
        assert (answer.status, answer.json()["error"]["param"]) == (400, param), (fields, answer.body)


async def test_reference_audio_lies_among_the_uploads_and_is_gone_with_its_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": "default", "input": "Hi", "ref_audio": base64.b64encode(wav_file(1)).decode()}
    refused = await fetch(served.server, "POST", PATH, body)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "ref_audio")
    uploads = UploadFolder(0).path()

    async def is_gone() -> bool:
        return not any(uploads.glob(f"{os.getpid()}-*"))

    await eventually(is_gone)
    monkeypatch.setattr(multipart_forms, "FREE_BYTES", 1 << 62)
    full = await fetch(served.server, "POST", PATH, body)
    assert (full.status, full.json()["error"]["code"]) == (507, "insufficient_storage")


async def test_a_model_of_another_kind_is_refused_and_a_voice_writes_nothing(served: Served) -> None:
    chat = {"model": "default", "messages": [{"role": "user", "content": "Hi"}]}
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/embeddings", {"model": "default", "input": "Hi"}),
    ):
        answer = await fetch(served.server, "POST", path, body)
        assert answer.status == 400
        assert "a model for speech" in answer.json()["detail"]


class _Broken(Engines):
    """Engines whose speech fails after its first text chunk."""

    def load_engine(self, *arguments: Any) -> Any:
        engine: Any = super().load_engine(*arguments)
        speak, spoken = engine._model.speak, []

        def fail_later(piece: str, prepared: Any) -> Any:
            spoken.append(piece)
            if len(spoken) % 2 == 0:
                raise RuntimeError("the second piece")
            return speak(piece, prepared)

        engine._model.speak = fail_later
        return engine


@pytest.mark.deep
async def test_what_fails_midway_cuts_the_file_or_is_an_event(tiny_pocket: Path) -> None:
    settings = Settings(models=(str(tiny_pocket),), shutdown_timeout=60.0)
    async with serving(settings, engines=_Broken(settings)) as served:

        def listen(client: openai.OpenAI) -> None:
            with pytest.raises(openai.APIConnectionError) as cut:
                create(client)
            assert "incomplete" in str(cut.value.__cause__)

        await ask(served, listen)
        answer = await fetch(
            served.server, "POST", PATH, {"model": "default", "input": TEXT, "stream_format": "sse"}
        )
        last = json.loads(answer.body.decode().strip().splitlines()[-1][6:])
        assert (last["type"], last["error"]["code"]) == ("error", "internal_error")


async def test_voices_are_listed(served: Served) -> None:
    for prefix in ("/v1", ""):
        answer = await fetch(served.server, "GET", f"{prefix}/audio/voices")
        assert [voice["id"] for voice in answer.json()["voices"]] == ["alba", "default"]
        models = (await fetch(served.server, "GET", f"{prefix}/audio/models")).json()["models"]
        assert [(model["id"], model["voices"]) for model in models] == [("tiny-voice", ["alba", "default"])]
    one = await fetch(served.server, "GET", "/v1/audio/voices?model=tiny-voice")
    assert len(one.json()["voices"]) == 2
    assert (await fetch(served.server, "GET", "/v1/audio/voices?model=nope")).status == 404
