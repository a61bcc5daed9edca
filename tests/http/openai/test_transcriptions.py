"""`POST /v1/audio/transcriptions` and `/v1/audio/translations` with the official client."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from greenroom.schemas.events.events import Finished
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask, ask_together
from greenroom.tests.support.clients.web_socket_clients import until_closed
from greenroom.tests.support.engines.watched_engines import WatchedEngines, until
from greenroom.tests.support.hostile.uploads import form
from greenroom.tests.support.media.recordings import noise, silence, write_recording
from greenroom.tests.support.servers.http_servers import Served, connected, serving
from greenroom.tests.support.servers.shared_servers import Shared

pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
"""Filter of the client's warning: OpenAI recommends newer models for translations."""

TEXT = "hello from the tiny whisper."
ENGLISH = "in English."


@pytest.fixture
def served(tiny_whisper: Path, shared: Shared) -> Served:
    return shared(Settings(models=(str(tiny_whisper),), shutdown_timeout=60.0))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording with speech at two times, half a minute apart."""
    sound = np.concatenate([noise(4), silence(30), noise(3)])
    return write_recording(tmp_path_factory.mktemp("recordings") / "speech.mp3", sound, "mp3")


@pytest.fixture
def spoken(recording: Path) -> bytes:
    """Return that recording's bytes."""
    return recording.read_bytes()


def spooled_files() -> list[Path]:
    """Return the uploaded files that this process keeps."""
    folder = Path(tempfile.gettempdir())
    return list(folder.glob(f"greenroom-uploads-*/{os.getpid()}-*"))


async def post(served: Served, path: str, data: dict[str, Any], file: bytes | None = b"") -> httpx2.Response:
    files = {} if file is None else {"file": ("speech.wav", file)}
    async with httpx2.AsyncClient(timeout=300) as client:
        return await client.post(f"{served.base_url}{path}", data=data, files=files)


@pytest.mark.deep
async def test_every_format_of_a_transcript(served: Served, recording: Path) -> None:
    def transcribe(client: openai.OpenAI) -> dict[str, Any]:
        def create(**asked: Any) -> Any:
            return client.audio.transcriptions.create(model="default", file=recording, **asked)

        return {
            "json": create(),
            "text": create(response_format="text"),
            "srt": create(response_format="srt"),
            "vtt": create(response_format="vtt"),
            "verbose_json": create(response_format="verbose_json"),
            "words": create(
                response_format="verbose_json", timestamp_granularities=["word"], language="en", prompt="tiny"
            ),
            "both": create(
                response_format="verbose_json", timestamp_granularities=["word", "segment"], temperature=0.0
            ),
        }

    answers = await ask(served, transcribe)
    assert answers["json"].text == f"{TEXT} {TEXT}"
    assert answers["json"].usage.type == "duration"
    assert answers["json"].usage.seconds == pytest.approx(37, abs=0.2)
    assert answers["text"] == f"{TEXT} {TEXT}\n"
    first, second = answers["srt"].strip().split("\n\n")
    assert first == f"1\n00:00:00,000 --> 00:00:02,000\n{TEXT}"
    assert second.startswith("2\n00:00:33,")
    assert answers["vtt"].startswith(f"WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n{TEXT}\n\n00:00:33.")
    verbose = answers["verbose_json"]
    assert (verbose.language, verbose.task, verbose.words) == ("german", "transcribe", None)
    assert verbose.duration == pytest.approx(37, abs=0.2)
    assert [segment.id for segment in verbose.segments] == [0, 1]
    assert verbose.segments[1].start == pytest.approx(33.5, abs=0.1)
    assert verbose.segments[1].seek == round(verbose.segments[1].start * 100)
    assert verbose.text == "".join(segment.text for segment in verbose.segments).strip()
    assert answers["words"].segments is None
    assert answers["words"].language == "english"
    assert [word.word for word in answers["words"].words] == f"{TEXT} {TEXT}".split()
    assert len(answers["both"].segments) == 2
    assert len(answers["both"].words) == 10


@pytest.mark.deep
async def test_a_stream_brings_segments_while_the_rest_is_heard(served: Served, recording: Path) -> None:
    def transcribe(client: openai.OpenAI) -> list[Any]:
        return list(client.audio.transcriptions.create(model="default", file=recording, stream=True))

    events = await ask(served, transcribe)
    segments = [event for event in events[:-1] if event.delta]  # without heartbeats
    assert [event.type for event in (*segments, events[-1])] == [
        *["transcript.text.delta"] * 2,
        "transcript.text.done",
    ]
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == f"{TEXT} {TEXT}"
    assert events[-1].usage.seconds == pytest.approx(37, abs=0.2)


@pytest.mark.deep
async def test_a_translation_is_english(served: Served, recording: Path) -> None:
    def translate(client: openai.OpenAI) -> tuple[Any, Any]:
        create = client.audio.translations.create
        return (
            create(model="default", file=recording),
            create(model="default", file=recording, response_format="verbose_json", prompt="names"),
        )

    plain, verbose = await ask(served, translate)
    assert plain.text == f"{ENGLISH} {ENGLISH}"
    assert verbose.segments[0].text == f" {ENGLISH}"
    assert verbose.task == "translate"


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"response_format": "diarized_json"}, "response_format"),
    ({"response_format": "docx"}, "response_format"),
    ({"temperature": "1.5"}, "temperature"),
    ({"temperature": "nan"}, "temperature"),
    ({"temperature": "warm"}, "temperature"),
    ({"language": "klingon"}, "language"),
    ({"language": "x" * 5000}, "language"),
    ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]"),
    (
        {"timestamp_granularities[]": "letter", "response_format": "verbose_json"},
        "timestamp_granularities[]",
    ),
    ({"include[]": "logprobs"}, "include"),
    ({"known_speaker_names[]": "Ann"}, "known_speaker_names"),
    ({"stream": "perhaps"}, "stream"),
    ({"stream": "true", "response_format": "srt"}, "response_format"),
    ({"chunking_strategy": "never"}, "chunking_strategy"),
    ({"chunking_strategy": '{"type": "other"}'}, "chunking_strategy"),
    ({"chunking_strategy": "[" * 4000}, "chunking_strategy"),
    ({"model": ""}, "model"),
    ({"language": ["en", "de"]}, "language"),
)
"""Refused fields, with the name in the error."""


async def test_what_is_not_supported_is_refused_by_name(served: Served, spoken: bytes) -> None:
    for fields, param in REFUSED:
        answer = await post(served, "/audio/transcriptions", {"model": "default", **fields}, spoken)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), fields
        answer = await post(served, "/audio/translations", {"model": "default", **fields}, spoken)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), fields


async def test_what_is_no_recording_is_refused(served: Served) -> None:
    for file in (b"", b"no sound at all " * 500, bytes(50_000)):
        answer = await post(served, "/audio/transcriptions", {"model": "default"}, file)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
    without = await post(served, "/audio/transcriptions", {"model": "default"}, None)
    assert without.status_code == 415  # without a file, the client uses another content type


@pytest.mark.deep
async def test_fields_are_taken_before_and_behind_the_file(served: Served, spoken: bytes) -> None:
    body = b"".join(
        [
            b"ignored preamble\r\n",
            b'--b\r\ncontent-disposition: form-data; name="response_format"\r\n\r\ntext\r\n',
            b'--b\r\nContent-Disposition: form-data; name=file; filename="../../etc/passwd"\r\n'
            b"content-type: audio/mpeg\r\n\r\n" + spoken + b"\r\n",
            b'--b\r\ncontent-disposition: form-data; name="chunking_strategy[type]"\r\n\r\nserver_vad\r\n',
            b'--b\r\ncontent-disposition: form-data; name="unknown"; filename="a"\r\n\r\nunread\r\n',
            b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\ndefault\r\n--b--\r\nbehind it all',
        ]
    )
    async with httpx2.AsyncClient(timeout=300) as client:
        answer = await client.post(
            f"{served.base_url}/audio/transcriptions",
            content=body,
            headers={"content-type": 'multipart/form-data; boundary="b"'},
        )
    assert (answer.status_code, answer.text) == (200, f"{TEXT} {TEXT}\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.deep
async def test_requests_side_by_side_get_their_own_answers(served: Served, recording: Path) -> None:
    def transcribe(client: openai.OpenAI) -> str:
        return client.audio.transcriptions.create(model="default", file=recording).text

    def translate(client: openai.OpenAI) -> str:
        return client.audio.translations.create(model="default", file=recording).text

    texts = await ask_together(served, transcribe, translate, transcribe, translate)
    assert texts == [f"{TEXT} {TEXT}", f"{ENGLISH} {ENGLISH}"] * 2


@pytest.mark.deep
async def test_a_client_that_leaves_ends_its_recording_and_its_file(
    tiny_whisper: Path, spoken: bytes
) -> None:
    settings = Settings(models=(str(tiny_whisper),), shutdown_timeout=60.0)
    engines = WatchedEngines(settings, stops=True)
    upload = form(spoken, model="default", stream="true")
    async with serving(settings, engines=engines) as served:
        async with connected(served.server) as client:
            head = "".join(f"{name}: {value}\r\n" for name, value in upload.headers.items())
            start = f"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\n{head}\r\n"
            await client.send(start.encode() + upload.whole())
            await client.read_until(b"transcript.text.delta")
            engine = await engines.standing()
            assert spooled_files()
        await until_closed(served)
        engine.go_on.set()
        await until(lambda: not spooled_files())
        await until(lambda: not engine.has_work)
    [end] = [event for step in engine.steps for event in step if isinstance(event, Finished)]
    assert end.reason == "cancelled"


async def test_a_model_of_another_kind_says_so(served: Served, tmp_path: Path) -> None:
    async with httpx2.AsyncClient(timeout=300) as client:
        answer = await client.post(
            f"{served.base_url}/chat/completions",
            json={"model": "default", "messages": [{"role": "user", "content": "Hi"}]},
        )
    assert answer.status_code == 400
    assert "transcription" in answer.json()["error"]["message"]
