"""No dependency needs a compiler on macOS or Linux, on either processor architecture."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from greenroom.tests.support.packages.locked import (
    LINUX_ARM,
    PYTHONS,
    SYSTEMS,
    exported,
    has_wheel,
    installed_on,
)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_package_that_runs_has_a_wheel(system: str, python: str) -> None:
    wanted = list(installed_on(system, python, "embeddings", "cpu"))
    assert len(wanted) > 80
    assert [wish.name for wish in wanted if not has_wheel(wish, system, python)] == []


def test_what_has_none_is_left_out_there() -> None:
    [miniaudio] = (wish for wish in exported() if wish.name == "miniaudio")
    assert not has_wheel(miniaudio, LINUX_ARM, "3.11")
    assert "miniaudio" not in {wish.name for wish in installed_on(LINUX_ARM, "3.11")}


@pytest.mark.parametrize("accelerator", ["cuda12", "cuda13"])
def test_cuda_has_wheels_for_both_processors(accelerator: str) -> None:
    for system in SYSTEMS[1:]:
        wanted = list(installed_on(system, "3.13", accelerator))
        assert any(wish.name.startswith("mlx-cuda") for wish in wanted)
        assert [wish.name for wish in wanted if not has_wheel(wish, system, "3.13")] == []


def test_a_wheel_of_another_python_or_system_does_not_count() -> None:
    [mlx] = (wish for wish in exported() if wish.name == "mlx")
    assert has_wheel(mlx, LINUX_ARM, "3.14")
    assert not has_wheel(mlx, LINUX_ARM, "3.10")
    assert not has_wheel(Requirement(f"mlx-metal{mlx.specifier}"), LINUX_ARM, "3.11")
