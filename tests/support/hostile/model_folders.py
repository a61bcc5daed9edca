"""Hostile model folders: copies of a valid one, each spoiled in one way."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
GIGABYTE = 1 << 30


@attrs.frozen
class HostileFolder:
    """A way to spoil a folder, and the expected error.

    Args:
        spoil: Function that spoils a copy of a valid folder.
        said: Expected part of the error message.
        prompt: User message of the request; some folders need a certain text to do harm.
        code: Expected error code; its status is 503.
        starts: True if a server told to serve the folder starts.
    """

    spoil: Callable[[Path], object]
    said: str
    prompt: str = "Hello"
    code: str = "load_failed"
    starts: bool = True


def make_hostile(name: str, plain: Path, folder: Path) -> Path:
    """Copy a valid folder to `folder`, which must not exist, and spoil it as in `HOSTILE`."""
    shutil.copytree(plain, folder)
    HOSTILE[name].spoil(folder)
    return folder


def _pipe(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)


def _directory(name: str, folder: Path) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()


def _socket(name: str, folder: Path) -> None:
    (folder / name).unlink()
    directory = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{directory}/{name}")  # limited to about 100 characters
    os.close(directory)


def _endless(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/dev/zero")


def _sized(name: str, size: int, folder: Path) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(size)


def _changed(name: str, change: Callable[[dict[str, Any]], object], folder: Path) -> None:
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


def _config(**fields: Any) -> Callable[[Path], None]:
    return partial(_changed, CONFIG, lambda config: config.update(fields))


def _template(source: str) -> Callable[[Path], None]:
    return partial(_changed, "tokenizer_config.json", lambda config: config.update(chat_template=source))


def _growing(part: str, steps: str, listed: int) -> Callable[[Path], None]:
    step = {"type": "Replace", "pattern": {"Regex": "(.)"}, "content": "aaaaaaaaaa"}
    grown = {"type": "Sequence", steps: [step] * listed}
    return partial(_changed, TOKENIZER, lambda tokenizer: tokenizer.update({part: grown}))


def _doubling(folder: Path) -> None:
    """Have each character that is not ASCII doubled 30 times."""
    doubled = {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 30}
    _changed(TOKENIZER, lambda tokenizer: tokenizer.update(normalizer=doubled), folder)


def _layers_of_a_byte(count: int, folder: Path) -> None:
    """Replace the weights with as many layers as the configuration then states, each of one byte."""
    tensors = {
        f"model.layers.{layer}.scale": {"dtype": "U8", "shape": [1], "data_offsets": [layer, layer + 1]}
        for layer in range(count)
    }
    header = json.dumps(tensors).encode()
    (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(count))
    _config(num_hidden_layers=count)(folder)


def _folders(count: int, folder: Path) -> None:
    for number in range(count):
        (folder / f"voice-{number}").mkdir()


def _panicking(folder: Path) -> None:
    pattern = {"Regex": "(a+)+$|((((a*)*)*)*)*b"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    cut = {"type": "Sequence", "pretokenizers": [split, levels]}
    _changed(TOKENIZER, lambda tokenizer: tokenizer.update(pre_tokenizer=cut), folder)


def _without_numbers(folder: Path) -> None:
    """Set all norm weights to NaN."""
    import mlx.core as mx

    weights: Any = mx.load(str(folder / WEIGHTS))
    for name, value in weights.items():
        if "norm" in name.lower():
            weights[name] = mx.full(value.shape, float("nan"), value.dtype)
    mx.eval(weights)
    mx.save_safetensors(str(folder / WEIGHTS), weights, metadata={"format": "mlx"})


HOSTILE: Mapping[str, HostileFolder] = {
    "weights are a pipe": HostileFolder(partial(_pipe, WEIGHTS), "model.safetensors is a named pipe"),
    "tokenizer is a pipe": HostileFolder(partial(_pipe, TOKENIZER), "tokenizer.json is a named pipe"),
    "config is a pipe": HostileFolder(partial(_pipe, CONFIG), "config.json is a named pipe", starts=False),
    "template is a pipe": HostileFolder(
        partial(_pipe, "chat_template.jinja"), "chat_template.jinja is a named pipe"
    ),
    "weights are a folder": HostileFolder(partial(_directory, WEIGHTS), "model.safetensors is a folder"),
    "tokenizer is a socket": HostileFolder(partial(_socket, TOKENIZER), "tokenizer.json is a socket"),
    "tokenizer is endless": HostileFolder(partial(_endless, TOKENIZER), "tokenizer.json is a device"),
    "weights are endless": HostileFolder(partial(_endless, WEIGHTS), "model.safetensors is a device"),
    "something is endless": HostileFolder(partial(_endless, "preprocessor_config.json"), "is a device"),
    "large tokenizer": HostileFolder(partial(_sized, TOKENIZER, GIGABYTE), "tokenizer.json is larger than"),
    "large config": HostileFolder(partial(_sized, CONFIG, 5 << 20), "config.json is larger than 4 MiB"),
    "large template": HostileFolder(
        partial(_sized, "chat_template.jinja", 2 << 20), "chat_template.jinja is larger than 1 MiB"
    ),
    "many layers": HostileFolder(_config(num_hidden_layers=200_000), "num_hidden_layers = 200,000"),
    "many small layers": HostileFolder(
        partial(_layers_of_a_byte, 60_000), "num_hidden_layers = 60,000, but its weights hold no more than"
    ),
    "many folders": HostileFolder(partial(_folders, 3_000), "more than 1,000 folders"),
    "wide": HostileFolder(_config(hidden_size=1 << 20), "hidden_size = 1,048,576"),
    "many words": HostileFolder(_config(vocab_size=1 << 40), "vocab_size = 1,099,511,627,776"),
    "texts that grow": HostileFolder(_growing("normalizer", "normalizers", 9), "1,000,000,000 times as long"),
    "answers that grow": HostileFolder(_growing("decoder", "decoders", 9), "1,000,000,000 times as long"),
    "texts that double": HostileFolder(_doubling, "times as long"),
    "a template that asks for memory": HostileFolder(_template("{{ 'a' * 2000000000 }}"), "chat template"),
    "a template that formats": HostileFolder(_template("{{ '%0999999999d' % 1 }}"), "chat template"),
    "a template that centers": HostileFolder(_template("{{ 'a' | center(999999999) }}"), "chat template"),
    "a template that repeats": HostileFolder(
        _template(
            "{% set n = namespace(t='a') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}"
        ),
        "chat template",
    ),
    "a template that asks for time": HostileFolder(
        _template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
        "chat template",
    ),
    "a tokenizer that panics": HostileFolder(_panicking, "tokenizer", "a" * 36 + "c", "tokenizer_crashed"),
    "no numbers": HostileFolder(_without_numbers, "is no number", code="model_broken"),
}
"""Hostile folders by name. A request for one gets a 503, and other requests are unaffected."""
