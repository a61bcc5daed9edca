"""Folders of MLX's Whisper from CTranslate2's files, as faster-whisper loads them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from greenroom.tests.real.gguf_models import save_json
from greenroom.tests.real.packages import join_files, only_file

Weights = dict[str, NDArray[Any]]
_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


class _Reader:
    """A CTranslate2 file, read from front to back."""

    def __init__(self, path: Path) -> None:
        self._content = memoryview(path.read_bytes())
        self._place = 0

    def bytes(self, size: int) -> memoryview:
        """Return the next bytes."""
        self._place += size
        return self._content[self._place - size : self._place]

    def number(self, form: str) -> int:
        """Return the next number, of one of struct's forms."""
        return int(struct.unpack(f"<{form}", self.bytes(struct.calcsize(form)))[0])

    def text(self) -> str:
        """Return the next string, which a zero byte ends."""
        return bytes(self.bytes(self.number("H"))[:-1]).decode()


def read_ctranslate2(path: Path) -> Weights:
    """Return the variables of a model.bin: after a header, name, shape, type and bytes of each; aliases."""
    reader = _Reader(path)
    version, name, _ = reader.number("I"), reader.text(), reader.number("I")
    if version < 4 or name != "WhisperSpec":
        raise ValueError(f"{path.name} is {name} in version {version}, expected WhisperSpec in 4 or more")
    variables: Weights = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        dtype = _TYPES[reader.number("B")]
        variables[name] = np.frombuffer(reader.bytes(reader.number("I")), dtype).reshape(shape)
    for _ in range(reader.number("I")):
        alias = reader.text()
        variables.setdefault(alias, variables[reader.text()])
    return variables


def _weights(variables: Weights) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the names and tensors that transformers has for Whisper's variables in CTranslate2."""

    def both(source: str, target: str) -> Iterator[tuple[str, NDArray[Any]]]:
        yield f"{target}.weight", variables[f"{source}/weight"]
        yield f"{target}.bias", variables[f"{source}/bias"]

    def norm(source: str, target: str) -> Iterator[tuple[str, NDArray[Any]]]:
        yield f"{target}.weight", variables[f"{source}/gamma"]
        yield f"{target}.bias", variables[f"{source}/beta"]

    def attention(source: str, target: str, last: int) -> Iterator[tuple[str, NDArray[Any]]]:
        yield from norm(f"{source}/layer_norm", f"{target}_layer_norm")
        parts = [f"{source}/linear_{index}" for index in range(last)]
        weights = np.split(np.concatenate([variables[f"{part}/weight"] for part in parts]), 3)
        biases = np.split(np.concatenate([variables[f"{part}/bias"] for part in parts]), 3)
        for part, weight, bias in zip("qkv", weights, biases, strict=True):
            yield f"{target}.{part}_proj.weight", weight
            if part != "k":  # Whisper's keys have no bias; CTranslate2 keeps zeros.
                yield f"{target}.{part}_proj.bias", bias
        yield from both(f"{source}/linear_{last}", f"{target}.out_proj")

    for side in ("encoder", "decoder"):
        root = f"model.{side}"
        yield f"{root}.embed_positions.weight", variables[f"{side}/position_encodings/encodings"]
        yield from norm(f"{side}/layer_norm", f"{root}.layer_norm")
        for layer in range(_layers(variables)):
            source, target = f"{side}/layer_{layer}", f"{root}.layers.{layer}"
            yield from attention(f"{source}/self_attention", f"{target}.self_attn", 1)
            if side == "decoder":
                yield from attention(f"{source}/attention", f"{target}.encoder_attn", 2)
            yield from norm(f"{source}/ffn/layer_norm", f"{target}.final_layer_norm")
            yield from both(f"{source}/ffn/linear_0", f"{target}.fc1")
            yield from both(f"{source}/ffn/linear_1", f"{target}.fc2")
    yield from both("encoder/conv1", "model.encoder.conv1")
    yield from both("encoder/conv2", "model.encoder.conv2")
    yield "model.decoder.embed_tokens.weight", variables["decoder/embeddings/weight"]


def _layers(variables: Weights) -> int:
    return len(
        {name.split("/")[1] for name in variables if name.startswith("encoder/layer_") and "/ffn" in name}
    )


def make_whisper(folders: list[Path], out: Path) -> None:
    """Make a Whisper model in float16."""
    parts = sorted(file for folder in folders for file in folder.rglob("model.bin*"))
    whole = join_files(parts, out / "source.bin")
    variables = read_ctranslate2(whole)
    whole.unlink()
    halves = {name: np.asarray(value, np.float16) for name, value in _weights(variables)}
    save_file(halves, out / "model.safetensors", {"format": "pt"})
    described = json.loads(only_file(folders, "config.json").read_text())
    known = json.loads(only_file(folders, "tokenizer.json").read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in known["added_tokens"]}
    if "<|0.00|>" not in ids:  # CTranslate2 does without the times' names; mlx-audio looks them up.
        first = ids["<|notimestamps|>"] + 1
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        times = [{"id": first + step, "content": f"<|{step * 0.02:.2f}|>", **flags} for step in range(1501)]
        known["added_tokens"] += times
    save_json(out / "tokenizer.json", known)
    vocabulary, width = halves["model.decoder.embed_tokens.weight"].shape
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", _layers(variables)),
            ("attention_heads", width // 64),
            ("ffn_dim", 4 * width),
        )
    }
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    special = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    save_json(
        out / "config.json",
        {
            "architectures": ["WhisperForConditionalGeneration"],
            "model_type": "whisper",
            "d_model": width,
            **sides,
            "num_hidden_layers": _layers(variables),
            "num_mel_bins": int(variables["encoder/conv1/weight"].shape[1]),
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "vocab_size": vocabulary,
            "activation_function": "gelu",
            "torch_dtype": "float16",
            **special,
        },
    )
    languages = set(described.get("lang_ids", [])) - {start}
    save_json(
        out / "generation_config.json",
        {
            "alignment_heads": described["alignment_heads"],
            "suppress_tokens": described["suppress_ids"],
            "begin_suppress_tokens": described["suppress_ids_begin"],
            "lang_to_id": {text: number for text, number in ids.items() if number in languages},
            "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
            "is_multilingual": vocabulary >= 51865,
            "no_timestamps_token_id": ids["<|notimestamps|>"],
            "max_length": 448,
            **special,
        },
    )
    save_json(
        out / "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "processor_class": "WhisperProcessor",
            "feature_size": 80,
            "sampling_rate": 16000,
            "hop_length": 160,
            "n_fft": 400,
            "chunk_length": 30,
        },
    )
    save_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "WhisperTokenizer",
            "processor_class": "WhisperProcessor",
            "model_max_length": 1024,
            **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>"),
        },
    )
