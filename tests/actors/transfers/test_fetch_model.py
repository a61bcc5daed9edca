"""Fetches of models from a hub on a local socket, with all that can go wrong on the way."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from greenroom.actors.transfers.fetch_model import RESERVED_BYTES, DiskRoom, Wish, fetch_model
from greenroom.engine.catalog.hub.hub_cache import find_cached_model
from greenroom.engine.catalog.hub.removal import Removal, plan_removal
from greenroom.engine.catalog.hub.snapshot import RepositoryLock
from greenroom.schemas.models.model_description import Download
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.tests.support.servers.hub_server import COMMIT, Fault, Hub, digest_of, open_hub

NAME = "org/model"
WEIGHTS = "model.safetensors"
MB = 1 << 20
AT_ONCE = 15.0
"""Seconds on a machine under load; a host that sends nothing is waited for twice as long."""
SMALL = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}"}
FILES = {**SMALL, WEIGHTS: os.urandom(6 * MB), "run_me.py": b"raise SystemExit", "photo.png": b"png"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with open_hub({NAME: FILES}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


async def fetch(cache: Path, name: str = NAME, pauses: tuple[float, ...] = (0, 0, 0)) -> Path:
    return await fetch_model(Wish(name, pauses=pauses), cache=cache)


async def failure(cache: Path, name: str = NAME, status: int = 503) -> str:
    with pytest.raises(ProblemError) as caught:
        await fetch(cache, name)
    problem = caught.value.problem
    code = {503: "load_failed", 409: "model_in_use"}.get(status, "model_not_found")
    assert (problem.status, problem.code) == (status, code)
    assert "\n" not in problem.detail
    return problem.detail


def fetched(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def found(cache: Path, pattern: str) -> list[Path]:
    return list(cache.rglob(pattern))


def repositories(cache: Path) -> list[Path]:
    return list(cache.glob("models--*"))


def only_part(cache: Path) -> Path:
    [part] = found(cache, "*.greenroom.part")
    return part


def leftovers(cache: Path) -> list[Path]:
    return [*found(cache, "*.part"), *found(cache, "*.incomplete"), *cache.glob(".greenroom/*")]


async def until_there(cache: Path, size: int) -> None:
    """Wait until a part has a size."""
    while sum(part.stat().st_size for part in found(cache, "*.part")) < size:  # noqa: ASYNC110
        await trio.sleep(0.01)


async def test_the_files_that_mlx_needs_lie_as_the_hub_library_lays_them(cache: Path, hub: Hub) -> None:
    seen: list[DownloadProgress] = []
    told: list[Download] = []
    folder = await fetch_model(Wish(NAME), seen.append, told.append, cache)
    assert fetched(folder) == {**SMALL, WEIGHTS: FILES[WEIGHTS]}
    assert find_cached_model(NAME, cache) == folder
    assert (told[0].files, told[0].nbytes) == (1, 6 * MB)
    assert [each.stage for each in seen][:2] == ["resolving", "downloading"]
    assert (seen[-1].files, seen[-1].nbytes, seen[-1].received) == (3, seen[-1].nbytes, seen[-1].nbytes)
    assert leftovers(cache) == []

    from huggingface_hub import snapshot_download

    asked = len(hub.requests)
    how = {"cache_dir": cache, "allow_patterns": ["*.json", "*.safetensors"]}
    assert snapshot_download(NAME, **how, local_files_only=True) == str(folder)
    assert snapshot_download(NAME, **how, endpoint=hub.address) == str(folder)
    gets = [each for each in hub.requests[asked:] if each.method == "GET" and "/resolve/" in each.path]
    assert gets == []


async def test_a_second_fetch_asks_for_no_file(cache: Path, hub: Hub) -> None:
    folder = await fetch(cache)
    asked = len(hub.requests)
    assert await fetch(cache) == folder
    assert not [path for path in hub.paths[asked:] if "/resolve/" in path]


async def test_cut_connections_are_resumed_where_they_were_cut(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = fault = Fault(2 * MB + 5, times=1)
    folder = await fetch(cache)
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS) == ["", f"bytes={2 * MB + 5}-"]
    assert fault.times == 0


async def test_a_host_that_does_not_resume_is_asked_again_from_the_beginning(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(3 * MB, times=1)
    hub.ranges = False
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS) == ["", f"bytes={3 * MB}-"]


async def test_a_file_that_keeps_being_cut_is_given_up_and_resumed_by_the_next_fetch(
    cache: Path, hub: Hub
) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = fault = Fault(MB, times=100)
    assert "the next try resumes" in await failure(cache)
    assert find_cached_model(NAME, cache) is None
    fault.times = 0
    before = len(hub.asked(WEIGHTS))
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS)[before:] == [f"bytes={MB}-"]


async def test_a_busy_hub_is_asked_again(cache: Path, hub: Hub) -> None:
    hub.statuses += [503, 429, 500]
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == FILES[WEIGHTS]


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
async def test_a_wrong_hash_is_refused_and_nothing_of_it_stays(cache: Path, hub: Hub, name: str) -> None:
    right = FILES[name]
    hub.served[f"{NAME}/{name}"] = right[:-1] + bytes([right[-1] ^ 1])
    assert f"'{name}' does not have the hash that {hub.address} lists" in await failure(cache)
    assert not found(cache, f"*{digest_of(name, right)}*")
    assert find_cached_model(NAME, cache) is None
    hub.served.clear()
    assert fetched(await fetch(cache))[name] == right


async def test_a_part_that_the_disk_has_spoiled_is_fetched_anew(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(2 * MB, times=4)
    await failure(cache)
    part = only_part(cache)
    part.write_bytes(b"x" * part.stat().st_size)
    hub.faults.clear()
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS)[-2:] == [f"bytes={2 * MB}-", ""]


async def test_more_bytes_than_listed_are_refused(cache: Path, hub: Hub) -> None:
    hub.served[f"{NAME}/{WEIGHTS}"] = FILES[WEIGHTS] + b"more"
    assert "is longer than" in await failure(cache)
    assert not found(cache, "*.part")


async def test_the_part_of_a_file_that_the_hub_has_changed_is_dropped(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = fault = Fault(2 * MB, times=4)
    await failure(cache)
    fault.times = 0
    hub.models[NAME][WEIGHTS] = new = os.urandom(3 * MB)
    hub.commit = "f" * 40
    before = len(hub.asked(WEIGHTS))
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == new
    assert hub.asked(WEIGHTS)[before:] == [""]
    assert leftovers(cache) == []


async def test_a_redirect_to_another_host_gets_the_range_and_never_the_token(
    cache: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "accepted")
    hub.gated.add(NAME)
    with open_hub({NAME: FILES}) as storage:
        hub.elsewhere = storage.address
        storage.faults[f"{NAME}/{WEIGHTS}"] = Fault(MB, times=1)
        folder = await fetch(cache)
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS) == storage.asked(WEIGHTS) == ["", f"bytes={MB}-"]
    to_hub = [each.headers.get("authorization") for each in hub.requests if "/resolve/" in each.path]
    assert set(to_hub) == {"Bearer accepted"}
    assert not any("authorization" in each.headers for each in storage.requests)


async def test_redirects_end(cache: Path, hub: Hub) -> None:
    hub.elsewhere = ""
    assert "redirected more than 5 times" in await failure(cache)
    hub.elsewhere = "file:///etc"
    assert "redirects to an address that is not https or http" in await failure(cache)


async def test_gated_and_private_models_say_what_to_do(
    cache: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add(NAME)
    terms = f"its terms have to be accepted at {hub.address}, and HF_TOKEN must be a token of who did"
    assert (await failure(cache)).endswith(terms)
    hub.private.add(NAME)
    assert "or it is private and HF_TOKEN does not open it" in await failure(cache, status=404)
    assert "has no model of that name" in await failure(cache, "org/nothing", 404)
    monkeypatch.setenv("HF_TOKEN", "accepted")
    assert fetched(await fetch(cache))[WEIGHTS] == FILES[WEIGHTS]


async def test_a_revision_has_a_reference_of_its_own(cache: Path, hub: Hub) -> None:
    folder = await fetch_model(Wish(NAME, "v1"), cache=cache)
    references = cache / "models--org--model" / "refs"
    assert (references / "v1").read_text() == COMMIT == folder.name
    assert not (references / "main").exists()
    with pytest.raises(ProblemError, match="has no such revision of it"):
        await fetch_model(Wish(NAME, "v2"), cache=cache)


UNUSABLE = {
    "no configuration": ({"README.md": b"# hello"}, "there is no config.json"),
    "another format": ({"model.gguf": b"GGUF"}, "it holds GGUF (model.gguf)"),
    "PyTorch": ({**SMALL, "pytorch_model.bin": b"weights"}, "it holds PyTorch's weights (pytorch_model.bin)"),
    "a pipeline": ({"model_index.json": b"{}", "unet/model.safetensors": b""}, "a pipeline of diffusers"),
    "an unknown architecture": (
        {**FILES, "config.json": b'{"model_type": "sphinx"}'},
        "its architecture 'sphinx' is not known",
    ),
    "no tokenizer": ({name: FILES[name] for name in ("config.json", WEIGHTS)}, "there is no tokenizer in it"),
    "a missing shard": (
        {**FILES, f"{WEIGHTS}.index.json": json.dumps({"weight_map": {"a": "model-9.safetensors"}}).encode()},
        "it lacks 'model-9.safetensors'",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
async def test_a_repository_without_a_usable_model_is_refused_before_weights_are_fetched(
    cache: Path, hub: Hub, case: str
) -> None:
    files, why = UNUSABLE[case]
    hub.models["org/other"] = files
    assert why in await failure(cache, "org/other")
    assert not hub.asked(WEIGHTS)
    assert repositories(cache) == leftovers(cache) == []
    if "config.json" not in files:
        assert not [path for path in hub.paths if "/resolve/" in path]


HOSTILE = ["../../outside.json", "/etc/outside.json", "a/../../b.json", "a//b.json", "./c.json", "a\\..\\b"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_names_that_leave_the_snapshot_are_refused(
    cache: Path, hub: Hub, name: str, tmp_path: Path
) -> None:
    hub.models[NAME][name] = b"{}"
    assert "which leaves its folder" in await failure(cache)
    assert found(tmp_path, "*.json") == []


async def test_a_name_that_is_a_file_and_a_folder_is_refused(cache: Path, hub: Hub) -> None:
    hub.models[NAME] |= {"voices.json": b"{}", "voices.json/a.json": b"{}"}
    await failure(cache)
    assert repositories(cache) == leftovers(cache) == []


@pytest.mark.parametrize("commit", ["../../etc", "", "main"])
async def test_a_commit_that_is_none_is_refused(cache: Path, hub: Hub, commit: str) -> None:
    hub.commit = commit
    await failure(cache)
    assert found(cache, "*") == []


async def test_offline_is_obeyed(cache: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert (await failure(cache)).endswith("HF_HUB_OFFLINE forbids it")
    assert hub.requests == []


async def test_a_model_larger_than_the_disk_is_refused_before_it_is_fetched(
    cache: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: attrs_like(usage, free=RESERVED_BYTES + 5 * MB))
    reason = await failure(cache)
    assert "it needs 6.3 MB, and 0.3 GB are free where" in reason
    assert reason.endswith("and 256 MB stay free")
    assert hub.asked(WEIGHTS) == []


async def test_two_fetches_do_not_count_the_same_room(
    cache: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, room = shutil.disk_usage(cache.parent), DiskRoom()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: attrs_like(usage, free=RESERVED_BYTES + 10 * MB))
    hub.models["org/other"] = {**FILES, WEIGHTS: os.urandom(6 * MB)}
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(1 * MB, "hold")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fetch_model, Wish(NAME), cache=cache, room=room))
        await trio.to_thread.run_sync(hub.held.wait)
        with pytest.raises(ProblemError, match=r"of which other downloads need 5.2 MB"):
            await fetch_model(Wish("org/other"), cache=cache, room=room)
        nursery.cancel_scope.cancel()
    await fetch_model(Wish("org/other"), cache=cache, room=room)


def attrs_like(usage: object, free: int) -> object:
    return usage._replace(free=free)  # type: ignore[attr-defined]


FETCH_ON_A_SMALL_DISK = """
import os, sys
from pathlib import Path
from greenroom.actors.transfers.fetch_model import Wish, fetch_model
from greenroom.engine.catalog.hub.hub_cache import find_cached_model
from greenroom.schemas.problems import ProblemError
import trio

cache = Path(sys.argv[1])
other = cache.parent / "of another program"


async def fetch():
    return await fetch_model(Wish("org/model"), fill, cache=cache)


def fill(progress):
    if progress.received > 1 << 20 and not other.exists():
        with open(other, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError as error:
                print(error.strerror)


try:
    trio.run(fetch)
except ProblemError as error:
    print(error.problem.detail)
print(find_cached_model("org/model", cache))
[part] = cache.rglob("*.greenroom.part")
print(0 < part.stat().st_size < 6 << 20)
other.write_bytes(b"")
print((trio.run(fetch) / "model.safetensors").stat().st_size)
"""


def in_a_mount_of_its_own(command: list[str]) -> list[str]:
    """Return a command in a mount namespace of its own, where it may mount; skip where there is none."""
    own = ["unshare", "--user", "--map-root-user", "--mount", *command]
    if shutil.which("unshare") is None or subprocess.run([*own[:4], "true"], check=False).returncode:
        pytest.skip("without mount namespaces no small file system; the test with RLIMIT_FSIZE ran instead")
    return own


@pytest.mark.deep
async def test_a_file_system_that_another_program_fills_meanwhile_keeps_what_has_arrived(
    tmp_path: Path, hub: Hub
) -> None:
    hub.pace = 0.02
    mounted = tmp_path / "small"
    mounted.mkdir()
    script = 'mount -t tmpfs -o size=275m none "$1" && exec "$2" -c "$3" "$1/hub"'
    command = in_a_mount_of_its_own(["sh", "-c", script, "sh", str(mounted)])
    command += [sys.executable, FETCH_ON_A_SMALL_DISK]
    run = partial(subprocess.run, command, capture_output=True, text=True, timeout=600, check=False)
    ended = await trio.to_thread.run_sync(run)
    assert ended.returncode == 0, ended.stderr
    filled, failed, found_then, kept, size = ended.stdout.splitlines()
    assert filled == "No space left on device"
    assert "the disk takes no more (No space left on device); what has arrived is kept" in failed
    assert (found_then, kept, int(size)) == ("None", "True", 6 * MB)
    first, *_, last = hub.asked(WEIGHTS)
    assert (first, last.startswith("bytes=")) == ("", True)


async def test_a_full_disk_keeps_what_has_arrived(cache: Path, hub: Hub) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MB, limits[1]))
    try:
        detail = await failure(cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "the disk takes no more (File too large); what has arrived is kept" in detail
    assert find_cached_model(NAME, cache) is None
    part = only_part(cache)
    assert part.stat().st_size == 4 * MB
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS)[-1] == f"bytes={4 * MB}-"


async def test_a_cancelled_fetch_ends_at_once_and_is_resumed(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(4 * MB, "hold")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch, cache)
        await trio.to_thread.run_sync(hub.held.wait)
        await until_there(cache, 3 * MB)
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < AT_ONCE
    have = only_part(cache).stat().st_size
    assert ((await fetch(cache)) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS) == ["", f"bytes={have}-"]


async def test_a_hub_that_never_answers_is_left_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch, cache)
        stream = await listeners[0].accept()
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < AT_ONCE
    await stream.aclose()
    await listeners[0].aclose()


async def test_two_fetches_at_once_share_one_transfer(cache: Path, hub: Hub) -> None:
    stages: list[str] = []
    async with trio.open_nursery() as nursery:
        with RepositoryLock(NAME, cache) as lock:
            assert lock.try_to_fetch()
            for _ in range(2):
                nursery.start_soon(
                    fetch_model, Wish(NAME), lambda each: stages.append(each.stage), lambda _: None, cache
                )
            while stages.count("waiting") < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert hub.asked(WEIGHTS) == [""]


async def test_a_fetch_and_a_deletion_of_one_model_keep_apart(cache: Path, hub: Hub) -> None:
    folder = await fetch(cache)
    removal = plan_removal(NAME, folder, (), cache)
    with removal.claim():
        assert "is being deleted" in await failure(cache, status=409)
        with pytest.raises(ProblemError, match="is being deleted"):
            removal.claim()
    hub.models[NAME][WEIGHTS] = os.urandom(6 * MB)
    hub.commit = "f" * 40
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(4 * MB, "hold")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch, cache)
        await trio.to_thread.run_sync(hub.held.wait)
        waits = trio.Event()

        def report(progress: DownloadProgress) -> None:
            if progress.stage == "waiting":
                waits.set()

        nursery.start_soon(partial(fetch_model, Wish(NAME), report, cache=cache))
        await waits.wait()
        with pytest.raises(ProblemError, match="is being fetched: cancel that first") as caught:
            removal.claim()
        assert (caught.value.problem.status, caught.value.problem.code) == (409, "model_in_use")
        nursery.cancel_scope.cancel()
    assert (folder / "config.json").is_file()
    with removal.claim():
        removal.remove()
    assert repositories(cache) == []
    assert ((await fetch(cache)) / WEIGHTS).is_file()


DIE_WHILE_DELETING = """
import os, signal, sys
from pathlib import Path
from greenroom.engine.catalog.hub.snapshot import RepositoryLock

RepositoryLock("org/model", Path(sys.argv[1])).delete()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_dies_while_it_deletes_locks_nothing(cache: Path) -> None:
    dying = subprocess.run([sys.executable, "-c", DIE_WHILE_DELETING, str(cache)], check=False)
    assert dying.returncode == -signal.SIGKILL
    with Removal(NAME, cache / "models--org--model", 0, cache=cache).claim():
        pass


@attrs.frozen
class Kind:
    files: dict[str, bytes]
    left_out: set[str]


KINDS = {
    "speech": Kind(
        {
            "config.json": b'{"istftnet": {}, "plbert": {}}',
            "kokoro-v1_0.safetensors": b"weights",
            "voices/bella.safetensors": b"voice",
            "samples/hello.wav": b"sound",
        },
        {"samples/hello.wav"},
    ),
    "embeddings": Kind(
        {
            "config.json": b'{"model_type": "bert"}',
            "modules.json": b"[]",
            "1_Pooling/config.json": b"{}",
            "2_Dense/model.safetensors": b"layer",
            "tokenizer.json": b"{}",
            "model.safetensors": b"weights",
            "onnx/model.onnx": b"other",
            "openvino/model.safetensors": b"other",
        },
        {"onnx/model.onnx", "openvino/model.safetensors"},
    ),
    "text": Kind({**FILES, ".gitattributes": b"", "original/model.safetensors": b"weights"}, set()),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_gets_the_files_that_it_needs(cache: Path, hub: Hub, kind: str) -> None:
    files, left_out = KINDS[kind].files, KINDS[kind].left_out
    if kind == "text":
        left_out = {".gitattributes", "original/model.safetensors", "run_me.py", "photo.png"}
    hub.models["org/kind"] = files
    folder = await fetch(cache, "org/kind")
    assert fetched(folder).keys() == files.keys() - left_out
    trusted = await fetch_model(Wish("org/kind", trust_remote_code=True), cache=cache)
    assert ("run_me.py" in fetched(trusted)) is (kind == "text")
