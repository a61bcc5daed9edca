"""`POST /v1/audio/speech` through the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from greenroom.schemas.settings import Settings
from greenroom.tests.support.audio_files import decode
from greenroom.tests.support.http_servers import Served, serving
from greenroom.tests.support.openai_clients import ask

TEXT = "The sea is calm tonight. The tide is full."
SECONDS = 12.96
"""Of `TEXT`: 5 and 4 words in two pieces, each with two seconds more, in whole frames of 80 ms."""


@pytest.fixture
async def served(tiny_pocket: Path) -> AsyncIterator[Served]:
    async with serving(Settings(models=(str(tiny_pocket),), shutdown_timeout=60.0)) as server:
        yield server


@pytest.mark.parametrize(
    ("form", "container", "codec", "content_type"),
    [
        ("mp3", "mp3", "mp3", "audio/mpeg"),
        ("opus", "ogg", "opus", "audio/ogg"),
        ("aac", "aac", "aac", "audio/aac"),
        ("flac", "flac", "flac", "audio/flac"),
        ("wav", "wav", "pcm_s16le", "audio/wav"),
    ],
)
async def test_each_form_decodes_to_the_right_length(
    served: Served, form: str, container: str, codec: str, content_type: str
) -> None:
    def speak(client: openai.OpenAI) -> tuple[bytes, str]:
        answer = client.audio.speech.create(
            model="default",
            voice="alba",
            input=TEXT,
            response_format=form,  # type: ignore[arg-type]
        )
        return answer.content, answer.response.headers["content-type"]

    content, stated = await ask(served, speak)
    heard = decode(content)
    assert (heard.format, heard.codec, stated) == (container, codec, content_type)
    assert heard.seconds == pytest.approx(SECONDS, abs=0.15)
    assert abs(heard.samples).max() > 0.001
