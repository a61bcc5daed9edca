"""Memory of loads on Macs of several sizes."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import structlog

from greenroom.engine.catalog.kinds import detect
from greenroom.engine.catalog.operator import check_vision
from greenroom.engine.loading.devices import use_device
from greenroom.engine.resources.account import MemoryAccount, Share
from greenroom.engine.resources.residence import need_within, set_limits
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
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
