"""Fixtures that all rooms share."""

from __future__ import annotations

import gc
import itertools
import math
import os
import shutil
import ssl
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis.internal.conjecture import providers

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.tests.support import surroundings
from greenroom.tests.support.platforms import chosen_device
from greenroom.tests.support.slow import scaled_clocks

# Before any conftest of a folder imports what keeps a clock.
if factor := os.environ.get(scaled_clocks.VARIABLE):
    scaled_clocks.scale_clocks(float(factor))

pytest_plugins = ["greenroom.testing", "greenroom.tests.support.slow.seconds_by_case"]

_RUNTIME_FOLDERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    # What is logged stands beside a test that fails; rich would take 0.1 s to draw a traceback.
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])
    # The same examples in every run, however slow the machine; only `make soak` looks for new ones.
    soak = config.option.markexpr == "soak"
    hypothesis.settings.register_profile(
        "greenroom",
        max_examples=100 if soak else 20,  # of each parameter, and the same in every run
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )
    hypothesis.settings.load_profile("greenroom")
    if not soak:
        # It would read every file of the program for constants to try, three seconds in each process.
        pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda path: False)
    # With several workers this process runs no test, and hands its environment on to them as it is.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        home = Path(tempfile.mkdtemp(prefix="greenroom-tests-"))
        config.add_cleanup(lambda: shutil.rmtree(home))
        device = os.environ.get(chosen_device.VARIABLE)
        surroundings.neutralize(home)
        chosen_device.choose_device(device)
        gc.disable()  # what is imported stays


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    """Let each worker begin elsewhere: in a new clone, what one has compiled the others need not."""
    report: pytest.CollectReport = yield
    workers = getattr(collector.config, "workerinput", None)
    if workers and report.passed and isinstance(collector, pytest.Directory):
        begin = len(report.result) * int(workers["workerid"].removeprefix("gw")) // workers["workercount"]
        report.result = [*report.result[begin:], *report.result[:begin]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parts)  # all workers have the same order


def pytest_collection_finish() -> None:
    # Each unload of a model collects garbage, and would look through all that the tests have imported.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _patience() -> Iterator[None]:
    """Proofs, reads, decoders, ranks and threads take as long as they need; copies are timed small."""
    from greenroom.actors.core import worker
    from greenroom.engine.loading import batching
    from greenroom.engine.media import large_images, pdf_pages
    from greenroom.engine.ranks import ranked_engine
    from greenroom.engine.text.prefix_cache import disk_tier, restoration
    from greenroom.engine.text.scheduler import step_costs
    from greenroom.tests.support.engines.ranked_engines import PATIENT

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_costs, "_COPIED_BYTES", 1 << 20)  # 16 MB would take a third of each small load
        patch.setattr(batching, "MIN_SECONDS", math.inf)
        patch.setattr(batching, "MAX_PASS_SECONDS", math.inf)
        patch.setattr(disk_tier, "_SCAN_TIMEOUT", 3600.0)
        patch.setattr(restoration, "READ_TIMEOUT", 3600.0)
        patch.setattr(worker, "_CLOSE_SECONDS", dict.fromkeys(worker._CLOSE_SECONDS, math.inf))
        patch.setattr(pdf_pages, "SECONDS", 3600.0)
        patch.setattr(large_images, "SECONDS", 3600.0)
        for limit, seconds in PATIENT.items():
            patch.setattr(ranked_engine, limit, seconds)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled_routes() -> Iterator[None]:
    """Compile each route's URL builder once for all servers, each of which would take 0.05 s for it."""
    from werkzeug.routing import Rule

    builders: dict[tuple[Any, ...], Any] = {}
    compile_builder = Rule._compile_builder

    def compile_once(rule: Rule, append_unknown: bool = True) -> Any:
        key = (rule.rule, tuple(rule._trace), repr(rule.defaults), append_unknown)
        if key not in builders:
            builders[key] = compile_builder(rule, append_unknown)
        return builders[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rule, "_compile_builder", compile_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates() -> Iterator[None]:
    """Read this machine's certificates once for all clients, each of which would take 0.03 s for it."""
    import httpx._transports.default
    import httpx2._transports.default

    with pytest.MonkeyPatch.context() as patch:
        for transports in (httpx._transports.default, httpx2._transports.default):
            patch.setattr(transports, "create_ssl_context", _read_once(transports.create_ssl_context))
        yield


def _read_once(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    made: dict[tuple[Any, ...], ssl.SSLContext] = {}

    def create_once(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return create(verify=verify, cert=cert, trust_env=trust_env)
        key = (trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        if key not in made:
            made[key] = create(verify=verify, cert=cert, trust_env=trust_env)
        return made[key]

    return create_once


@pytest.fixture(autouse=True)
def _runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each test's commands find no servers but its own."""
    folder = tmp_path_factory.getbasetemp() / f"runtime-{next(_RUNTIME_FOLDERS)}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model(kind)` is the folder of that kind's tiny model, made once per session.

    `tiny_model(kind, vocab_size=…)` makes one whose config.json differs in those fields.
    """
    from greenroom.tests.support.models.tiny_models import make_tiny_model, make_tokenizer

    home = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def folder_of(kind: str, **changes: Any) -> Path:
        name = "-".join([kind, *(f"{field}={changes[field]}" for field in sorted(changes))])
        if not (home / "tokenizer.json").exists():
            make_tokenizer(home)
        if name not in made:
            made[name] = make_tiny_model(kind, home / name, home, **changes)
        return made[name]

    return folder_of


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_encoder(kind, **changes)` is likewise the folder of a tiny model that embeds or ranks."""
    from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder

    home = tmp_path_factory.mktemp("encoders")

    def folder_of(kind: str, **changes: Any) -> Path:
        folder = home / "-".join([kind, *(f"{field}={changes[field]}" for field in sorted(changes))])
        return folder if folder.exists() else make_tiny_encoder(kind, folder, **changes)

    return folder_of


@pytest.fixture(scope="session")
def tiny_vision_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_vision_model(kind)` is the folder of that kind's tiny model that sees, made once per session.

    `tiny_vision_model(kind, wide=True)` makes one whose images take 1,000 tokens, if they are large enough.
    """
    from greenroom.tests.support.models.tiny_vision_models import make_tiny_vision_model

    home = tmp_path_factory.mktemp("vision-models")
    made: dict[str, Path] = {}

    def folder_of(kind: str, *, wide: bool = False, **changes: Any) -> Path:
        fields = (f"{field}={changes[field]}" for field in sorted(changes))
        name = "-".join([kind, *(["wide"] if wide else []), *fields])
        if name not in made:
            made[name] = make_tiny_vision_model(kind, home / name, wide=wide, **changes)
        return made[name]

    return folder_of


@pytest.fixture(scope="session")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny models' tokenizer as grammars see it, with a compiler and random walks."""
    from tokenizers import Tokenizer

    from greenroom.engine.grammar.compiler import GrammarCompiler
    from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
    from greenroom.tests.support.grammars.grammar_walks import END, Grammars
    from greenroom.tests.support.models.tiny_models import make_tokenizer

    folder = tmp_path_factory.mktemp("grammars")
    make_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    assert end is not None
    known = GrammarTokenizer(tokenizer, [end])
    return Grammars(known, GrammarCompiler(known, CALL_SYNTAXES), tokenizer.to_str())


@pytest.fixture(scope="session")
def tiny_pocket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Pocket TTS, which speaks a second for each word and two more for each piece."""
    from greenroom.tests.support.models.tiny_speech_models import make_tiny_pocket

    return make_tiny_pocket(tmp_path_factory.mktemp("speech") / "tiny-voice", voices=("default", "alba"))


@pytest.fixture(scope="session")
def tiny_whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Whisper that takes every language for German, and translates."""
    from greenroom.tests.support.models.tiny_whisper import make_tiny_whisper

    folder = tmp_path_factory.mktemp("whisper") / "tiny-ears"
    return make_tiny_whisper(folder, multilingual=True, language="de")
