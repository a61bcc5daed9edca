"""The example request that `greenroom serve` prints works for every type of the first model."""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from greenroom.http.terminal.streams import first_request, kind_of_default, whole_file, without_home
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.media.audio_files import wav_file
from greenroom.tests.support.servers.http_servers import serving


@pytest.mark.parametrize("kind", ["text", "vision", "embeddings", "rerank", "speech", "transcription"])
async def test_the_first_request_suits_the_first_model(kind: str, request: pytest.FixtureRequest) -> None:
    settings = Settings(models=(str(_folder(kind, request)),), shutdown_timeout=60.0)
    async with serving(settings) as served, httpx2.AsyncClient(timeout=300) as client:
        address = served.server.address
        found = await kind_of_default(served.system.pool)
        assert found == kind
        words = shlex.split(first_request(address, found))
        url = next(word for word in words if word.startswith(address))
        if "-d" in words:
            body = json.loads(words[words.index("-d") + 1])
            answer = await client.post(url, json={**body, "max_tokens": 2} if "stream" in body else body)
        else:
            assert words[-4:] == ["-F", "model=default", "-F", "file=@recording.wav"]
            answer = await client.post(url, data={"model": "default"}, files={"file": wav_file(1.0)})
    assert answer.status_code == 200, answer.text


def _folder(kind: str, request: pytest.FixtureRequest) -> Path:
    def made(fixture: str, *arguments: str) -> Path:
        folder_of: Callable[..., Path] = request.getfixturevalue(fixture)
        return folder_of(*arguments)

    match kind:
        case "text":
            return made("tiny_model", "qwen3")
        case "vision":
            return made("tiny_vision_model", "qwen2_vl")
        case "embeddings":
            return made("tiny_encoder", "bert")
        case "rerank":
            return made("tiny_encoder", "bert-rerank")
    folder: Path = request.getfixturevalue("tiny_pocket" if kind == "speech" else "tiny_whisper")
    return folder


def test_a_file_that_is_replaced_stays_as_private_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "transcript.txt"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_home_folder_is_no_part_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/al")
    told = "/home/al/x: ok, /home/alice/x, /mnt/home/al, /home/al"
    assert without_home(told) == "~/x: ok, /home/alice/x, /mnt/home/al, ~"
    monkeypatch.setenv("HOME", "/")
    assert without_home("/cache/x") == "/cache/x"
