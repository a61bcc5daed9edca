"""Memory of loads on Macs of several sizes."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import attrs
import mlx.core as mx
import pytest
import structlog

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.operator_texts import check_vision
from greenroom.engine.loading.devices import use_device
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.resources.residence import need_within, set_limits
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import Driver
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.platforms.gpus import GIGABYTE, METAL, pretend_gpu


@attrs.frozen
class Mac:
    """A Mac and the memory that models may have on it, in GB.

    Args:
        physical: Memory of the machine.
        working_set: Bytes that Metal recommends at most.
        together: Bytes of all models together, 85 % of that.
        seeing: Bytes of a model with vision, 70 % of the machine's memory.
    """

    physical: float
    working_set: float
    together: float
    seeing: float


MACS = (Mac(16, 10.67, 9.07, 11.2), Mac(36, 27, 22.95, 25.2), Mac(64, 48, 40.8, 44.8))
by_size = pytest.mark.parametrize("mac", MACS, ids=lambda mac: f"{mac.physical} GB")


def gigabytes(number: float) -> int:
    return int(number * GIGABYTE)


def account_of(mac: Mac, monkeypatch: pytest.MonkeyPatch, limit: int | None = None) -> MemoryAccount:
    sizes = {"memory_size": mac.physical, "max_recommended_working_set_size": mac.working_set}
    pretend_gpu(monkeypatch, {**METAL, **{name: gigabytes(size) for name, size in sizes.items()}})
    use_device(Settings(device="gpu"))
    account = MemoryAccount(limit)
    set_limits(account)
    return account


@by_size
def test_a_text_model_within_the_limit_is_granted_what_it_needs(
    mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, need = account_of(mac, monkeypatch), gigabytes(mac.together - 0.1)
    with structlog.testing.capture_logs() as logs:
        assert need_within(account, "m", "text", need, need).granted == need
    assert logs == []
    assert Share(account).charge_weights(need) is None


@by_size
def test_a_text_model_above_the_limit_is_loaded_alone_with_a_warning(
    mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, need = account_of(mac, monkeypatch), gigabytes(mac.working_set - 0.1)
    with structlog.testing.capture_logs() as logs:
        assert need_within(account, "m", "text", need, need).granted == account.limit
    assert [(line["log_level"], line["required"]) for line in logs] == [("warning", need)]
    alone = Share(account)
    assert alone.charge_weights(need) is None
    assert alone.available() == gigabytes(mac.working_set) - need  # what its requests may have
    beside = Share(account)
    assert beside.charge_weights(GIGABYTE) == 0
    alone.close()
    assert beside.charge_weights(GIGABYTE) is None
    assert Share(account).charge_weights(need) == (account.limit or 0) - GIGABYTE


@by_size
def test_a_text_model_above_what_the_device_gives_is_not_granted(
    mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, need = account_of(mac, monkeypatch), gigabytes(mac.working_set + 0.1)
    assert need_within(account, "m", "text", need, need).granted == need
    assert Share(account).charge_weights(need) == account.most


@by_size
def test_an_operators_limit_holds_for_a_text_model_too(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    account, need = account_of(mac, monkeypatch, gigabytes(mac.together)), gigabytes(mac.working_set - 0.1)
    assert need_within(account, "m", "text", need, need).granted == need
    assert Share(account).charge_weights(need) == account.limit


@by_size
def test_a_model_with_vision_is_never_loaded_above_its_share(
    mac: Mac, monkeypatch: pytest.MonkeyPatch, tiny_vision_model: TinyVisionModel, tmp_path: Path
) -> None:
    record = detect(tiny_vision_model("qwen2_vl"))
    for size, refused in ((mac.seeing - 0.1, False), (mac.seeing + 0.1, True)):
        weights = tmp_path / "model.safetensors"
        with weights.open("wb") as file:
            file.truncate(gigabytes(size))  # takes no space on the disk
        if not refused:
            check_vision(record, tmp_path, "m", Settings(), gigabytes(mac.physical))
            continue
        with pytest.raises(ProblemError) as caught:
            check_vision(record, tmp_path, "m", Settings(), gigabytes(mac.physical))
        problem, available = caught.value.problem, int(gigabytes(mac.physical) * 0.7)
        assert (problem.status, problem.code) == (507, "insufficient_memory")
        assert dict(problem.members)["required_bytes"] == gigabytes(size)
        assert dict(problem.members)["available_bytes"] == available
    account, need = account_of(mac, monkeypatch), gigabytes(mac.seeing - 0.1)
    assert need_within(account, "m", "vision", need, need).granted == need > (account.limit or 0)


MEGABYTE = 1 << 20
LIMIT = 64 * MEGABYTE
REQUESTS = 2000
AT_ONCE = 100

SYSTEM = tuple(random.Random(0).choices(range(300, 2000), k=400))


@attrs.define
class Watch:
    """Tracks MLX's memory beyond the weights and the account, in bytes."""

    weights: int
    most_active: int = 0
    most_beyond: int = 0
    idle: list[int] = attrs.field(factory=list)

    def step(self, account: MemoryAccount) -> None:
        now = account.statistics()
        active = mx.get_active_memory() - self.weights
        self.most_active = max(self.most_active, active)
        self.most_beyond = max(self.most_beyond, active - now.running - now.cached)

    def rest(self, account: MemoryAccount) -> None:
        mx.synchronize()
        self.idle.append(mx.get_active_memory() - self.weights - account.statistics().cached)


def parameters(choose: random.Random) -> GenerationParameters:
    """Generate any mixture of parameters that change how a sequence is computed."""
    return GenerationParameters(
        temperature=choose.choice([0.0, 0.7, 1.0]),
        seed=choose.randrange(1000),
        top_p=choose.choice([1.0, 0.9]),
        repetition_penalty=choose.choice([1.0, 1.0, 1.2]),
        presence_penalty=choose.choice([0.0, 0.0, 0.5]),
        logprobs=choose.random() < 0.1,
        n=2 if choose.random() < 0.05 else 1,
    )


def submit(driver: Driver, choose: random.Random) -> str:
    prompt = choose.choices(range(300, 2000), k=int(math.exp(choose.uniform(1, math.log(500)))))
    if choose.random() < 0.3:
        prompt = [*SYSTEM, *prompt[:100]]
    return driver.submit(prompt, int(math.exp(choose.uniform(0, math.log(150)))), parameters(choose))


@pytest.mark.soak
def test_the_account_holds_over_thousands_of_requests(
    tiny_model: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    account, choose = MemoryAccount(kv_limit=LIMIT), random.Random(7)
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(LIMIT), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 16  # or else nobody would ever be stopped
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    watch = Watch(mx.get_active_memory())
    pending = REQUESTS
    while pending or driver.engine.has_work:
        # All sequences end now and then, so that leaks show.
        rests = (REQUESTS - pending) % 125 == 0 and driver.engine.statistics().requests
        while pending and not rests and driver.engine.statistics().requests < AT_ONCE:
            name = submit(driver, choose)
            pending -= 1
            if choose.random() < 0.1:
                driver.step()
                driver.engine.cancel(name)
            rests = pending % 125 == 0
        driver.step()
        watch.step(account)
        assert account.statistics().peak <= LIMIT
        if not driver.engine.has_work:
            watch.rest(account)
    for events in driver.events.values():
        assert isinstance(events[-1], Finished), events[-1]
    admission, held = driver.engine.statistics().admission, account.statistics()
    assert admission.preempted > 0
    assert admission.cut == 0
    assert held.running == 0
    quarter = len(watch.idle) // 4
    first, last = statistics.median(watch.idle[:quarter]), statistics.median(watch.idle[-quarter:])
    with capsys.disabled():
        print(
            f"\naccount at most {held.peak / MEGABYTE:.1f} MB; MLX beyond weights at most "
            f"{watch.most_active / MEGABYTE:.1f} MB after a step, "
            f"{(mx.get_peak_memory() - watch.weights) / MEGABYTE:.1f} MB within one; beyond the account "
            f"{watch.most_beyond / MEGABYTE:.1f} MB; idle {first / MEGABYTE:.2f} and then "
            f"{last / MEGABYTE:.2f} MB; {admission}"
        )
    assert abs(last - first) < MEGABYTE // 4
