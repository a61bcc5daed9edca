"""Imported packages are declared as dependencies, with an upper bound if their internals are used."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from greenroom.engine.catalog.encoder_kinds import embedding_modules
from greenroom.engine.catalog.kind_detection import vision_module, vlm_text_module
from greenroom.engine.catalog.libraries import library_folder
from greenroom.tests.support.reference.source_trees import imports_in

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = [
    path for room in ("actors", "engine", "http", "schemas") for path in sorted((ROOT / room).rglob("*.py"))
]
PACKAGES = {"PIL": "pillow", "backports": "backports.zstd"}
"""Packages whose import name differs from their package name."""
EXTRAS = {"anyio", "jsonschema", "matplotlib", "mcp", "mcp-types", "opentelemetry", "referencing"}
STANDARD_LATER = {"compression"}
"""Standard library modules missing from the oldest supported Python."""

REACHED = {
    "av": ("engine/media/recordings.py", "av._core.__file__).av_max_alloc"),
    "h11": ("http/transport/http11.py", "self.connection.our_state is h11.SEND_BODY"),
    "hypercorn": ("http/transport/http11.py", "class Http11(H11Protocol)"),
    "jinja2": ("engine/tokenizer/bounded_environment.py", "def _parse("),
    "llguidance": ("engine/grammar/c_interface.py", "ctypes.Structure"),
    "mlx": ("engine/resources/device_errors.py", r"\[METAL\]"),
    "mlx-audio": ("engine/sound/speech/abilities.py", ".tts.models."),
    "mlx-embeddings": ("engine/encoding/embedding_model.py", "mlx_embeddings.utils"),
    "mlx-lm": ("engine/tokenizer/reading_in_pieces.py", "setattr(tokenizer_utils, name"),
    "mlx-vlm": ("engine/catalog/kind_detection.py", 'library_constant("mlx_vlm", "prompt_utils.py"'),
    "quart": ("http/transport/request_connection.py", "class FlowControlledRequest(TrioRequest)"),
    "quart-trio": ("http/transport/request_connection.py", "(TrioASGIHTTPConnection)"),
    "sqlite-utils": ("actors/store/database_file.py", "sys.meta_path.insert"),
    "tokenizers": ("engine/tokenizer/reading_in_pieces.py", '"continuing_subword_prefix"'),
    "transformers": (
        "engine/tokenizer/reading_in_pieces.py",
        "tokenization_utils_tokenizers.TokenizerFast =",
    ),
}
"""Packages that are patched, or whose internals are used, with one place of each."""

OVERRIDDEN = {
    ("BoundedCode", "_make_finalize"): "jinja2",
    ("BoundedEnvironment", "_parse"): "jinja2",
    ("BoundedTemplate", "_from_namespace"): "jinja2",
    ("Http11", "_check_protocol"): "hypercorn",
    ("Http11", "_close_stream"): "hypercorn",
    ("Http11", "_create_stream"): "hypercorn",
    ("Http11", "_maybe_recycle"): "hypercorn",
    ("Http11", "_send_error_response"): "hypercorn",
    ("Http11", "_send_h11_event"): "hypercorn",
    ("RegionParser", "_accumulate"): "transformers",
    ("RegionParser", "_close_current"): "transformers",
    ("RegionParser", "_open_explicit"): "transformers",
    ("RegionParser", "_scan"): "transformers",
}
"""Private methods of packages' classes that classes of ours override, with the package of each."""
DOCUMENTED = {("_UnheardLogger", "_proxy_to_logger"): "structlog"}
"""Overridden methods that the package documents as the way to write a class of one's own."""

NEEDED_AFTER_ALL = {
    # Imported at the module's top. The error message names the command that installs it.
    ("mlx_vlm/models/multi_modality/vision.py", "cv2"),
    # Video, and audio of vision models: no request reaches this code.
    ("mlx_vlm/models/embedding_gemma2/_video_decoder.py", "cv2"),
    ("mlx_vlm/utils.py", "cv2"),
    ("mlx_vlm/utils.py", "miniaudio"),
    # Voices stored as audio files in a model's folder.
    ("mlx_audio/audio_io.py", "miniaudio"),
}

LEFT_OUT = ("cv2", "datasets", "miniaudio", "sounddevice", "pandas", "pyarrow")
"""Packages that `make run` does not install, and miniaudio, which it leaves out on Linux for ARM."""


def requirements() -> dict[str, str]:
    """Return the project's requirements by package."""
    project = PROJECT["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["embeddings"]]
    return {re.split(r"[<>=\[;]", line)[0]: line for line in lines}


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the dotted names of other packages' modules that a file imports."""
    own = {*sys.stdlib_module_names, *STANDARD_LATER, "greenroom"}
    return frozenset(name for name in imports_in(path) if name.partition(".")[0] not in own)


def package_of(module: str) -> str:
    top = module.partition(".")[0]
    return PACKAGES.get(top, top.replace("_", "-"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_every_package_that_is_imported_is_asked_for() -> None:
    names = {package_of(name) for path in SOURCES for name in imported(path)}
    assert names - requirements().keys() <= EXTRAS


def test_packages_whose_insides_are_relied_on_have_a_ceiling() -> None:
    ceilings = {name for name, line in requirements().items() if "<" in line.partition(";")[0]}
    assert ceilings == REACHED.keys()


@pytest.mark.parametrize("package", REACHED)
def test_a_ceiling_stands_for_something_that_is_there(package: str) -> None:
    file, text = REACHED[package]
    assert text in (ROOT / file).read_text()


def test_whoever_imports_a_private_name_or_reads_a_library_off_its_files_needs_a_ceiling() -> None:
    private = {
        package_of(name)
        for path in SOURCES
        for name in imported(path)
        if any(map(is_private, name.split(".")))
    }
    by_name = re.compile(
        r'(?:models_of|exports_of|library_constant|library_folder|import_model_code)\(\s*f?"(\w+)'
    )
    read = {package_of(name) for path in SOURCES for name in by_name.findall(path.read_text())}
    assert {"av", "mlx-lm", "mlx-vlm", "mlx-audio"} <= private | read <= REACHED.keys()


def classes_with_private_methods(path: Path) -> Iterator[type]:
    """Yield a file's classes that have a base and a method that begins with an underscore."""
    classes = re.findall(r"^class (\w+)\((.*?)(?=^[@\w]|\Z)", path.read_text(), re.MULTILINE | re.DOTALL)
    private = re.compile(r"^    (?:async )?def _(?!_)", re.MULTILINE)
    names = [name for name, body in classes if private.search(body)]
    if names:
        module = importlib.import_module(
            ".".join(("greenroom", *path.relative_to(ROOT).with_suffix("").parts))
        )
        yield from (getattr(module, name) for name in names)


def overridden(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the private methods of a class that exist on a package's base, each with the package."""
    for name in (each for each, what in vars(kind).items() if is_private(each) and inspect.isroutine(what)):
        for base in kind.__mro__[1:]:
            top = base.__module__.partition(".")[0]
            if name in vars(base) and top not in {*sys.stdlib_module_names, "greenroom"}:
                yield name, package_of(top)
                break


def test_every_private_method_of_a_package_that_is_overridden_is_listed() -> None:
    found = {
        (kind.__name__, name): package
        for path in SOURCES
        for kind in classes_with_private_methods(path)
        for name, package in overridden(kind)
    }
    assert found == OVERRIDDEN | DOCUMENTED
    assert set(OVERRIDDEN.values()) <= REACHED.keys()


def test_what_is_left_out_is_imported_by_nothing_that_is_served_but_where_it_is_known() -> None:
    line = re.compile(rf"^\s*(?:import|from) +({'|'.join(LEFT_OUT)})\b", re.MULTILINE)
    found: set[tuple[str, str]] = set()
    for library in ("mlx_lm", "mlx_vlm", "mlx_audio"):
        root = library_folder(library)
        assert root is not None
        for path in root.rglob("*.py"):
            place = path.relative_to(root.parent)
            if _is_served(place):
                found.update(
                    (str(place), module) for module in line.findall(path.read_text(encoding="utf-8"))
                )
    assert found == NEEDED_AFTER_ALL


def _is_served(place: Path) -> bool:
    """Return whether the server may run a library's file, given by its path below site-packages."""
    library, *parts = place.parts
    if library == "mlx_lm":
        return parts[0] not in ("tuner", "quant", "examples")
    if library == "mlx_vlm":
        if parts[0] == "models" and len(parts) > 2:
            return _is_used(parts[1])
        return parts[0] not in ("evals", "train.py")
    if "tests" in parts or parts[0] in ("server.py", "sts", "vad", "lid", "music") or "eval" in parts:
        return False
    return parts[-1] not in ("audio_player.py", "generate.py") and "convert" not in parts[-1]


def _is_used(module: str) -> bool:
    writes = vision_module(module) is not None or vlm_text_module(module) is not None
    return writes or module in embedding_modules()
