"""Detection of speech models with a language model's architecture, by their tokens or their name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from greenroom.engine.catalog.kind_detection import detect

ORPHEUS = ["<custom_token_0>", "<custom_token_4095>"]
OUTETTS = ["<|global_features_start|>", "<|voice_characteristic_start|>"]


def model(folder: Path, model_type: str, tokens: list[str], file: str = "tokenizer.json") -> Path:
    """Write a model folder whose only hint is its vocabulary."""
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    added = [
        {"id": 128_256 + index, "content": token, "special": False} for index, token in enumerate(tokens)
    ]
    content = {"added_tokens": added} if file == "tokenizer.json" else {t["content"]: t["id"] for t in added}
    (folder / file).write_text(json.dumps(content, indent=1))
    return folder


@pytest.mark.parametrize(
    ("model_type", "tokens", "architecture"),
    [
        ("llama", ORPHEUS, "llama"),
        ("qwen3", ORPHEUS, "qwen3"),
        ("llama", OUTETTS, "outetts"),
        ("qwen3", OUTETTS, "outetts"),
        ("qwen2", ["<|bicodec_global_0|>", "<|bicodec_semantic_0|>"], "spark"),
        ("qwen3", ["[STOP]", "[TEXT]", "[START]"], "soprano"),
    ],
)
@pytest.mark.parametrize("file", ["tokenizer.json", "added_tokens.json"])
def test_tokens_of_sound_tell(
    tmp_path: Path, model_type: str, tokens: list[str], architecture: str, file: str
) -> None:
    record = detect(model(tmp_path, model_type, tokens, file))
    assert (record.model_type, record.architecture) == ("speech", architecture)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("me/orpheus-tts", "llama"),
        ("mlx-community/Llama-OuteTTS-1.0-1B-4bit", "outetts"),
        ("me/Spark-TTS-0.5B", "spark"),
    ],
)
def test_a_name_tells_where_no_token_does(tmp_path: Path, name: str, architecture: str) -> None:
    record = detect(model(tmp_path, "llama", []), name=name)
    assert (record.model_type, record.architecture) == ("speech", architecture)


@pytest.mark.parametrize("name", ["me/orpheus-8b-chat", "tts/llama", "spark-x1", "chat-about-tts"])
@pytest.mark.parametrize("tokens", [[], ["<|im_start|>", "[START]", "[STOP]"], ["<custom_token_0>"]])
def test_a_model_that_writes_stays_one(tmp_path: Path, name: str, tokens: list[str]) -> None:
    assert detect(model(tmp_path, "llama", tokens), name=name).model_type == "text"


def test_other_architectures_are_not_looked_at(tmp_path: Path) -> None:
    assert detect(model(tmp_path, "mistral", ORPHEUS)).model_type == "text"


def test_ming_speaks(tmp_path: Path) -> None:
    record = detect(model(tmp_path, "dense", []))
    assert (record.model_type, record.architecture) == ("speech", "dense")
