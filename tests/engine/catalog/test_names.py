"""Meanings of requested names, and names that two things have."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.catalog import Catalog, find_conflict
from greenroom.engine.catalog.folders import CatalogEntry
from greenroom.tests.support.models.model_folders import make_model


def test_a_name_is_an_id_an_alias_a_profile_and_last_a_pattern(tmp_path: Path) -> None:
    folders = [str(make_model(tmp_path / name)) for name in ("a", "b", "c")]
    catalog = Catalog(
        tuple(folders),
        cache=tmp_path / "cache",
        aliases=(("gpt", "b"), ("a:latest", "c"), ("shared", "a"), ("*", "c")),
        profiles={"a:code": "a", "shared": "b", "by-default": "default", "by-path": folders[1]},
    )

    def meaning(name: str) -> tuple[str, str | None]:
        found = catalog.find(name)
        assert isinstance(found, CatalogEntry)
        return found.id, found.profile

    assert {name: meaning(name) for name in ("a", "a:latest", "gpt", "gpt:latest", "shared", "other")} == {
        "a": ("a", None),
        "a:latest": ("a", None),
        "gpt": ("b", None),
        "gpt:latest": ("b", None),
        "shared": ("a", None),
        "other": ("c", None),
    }
    assert meaning("a:code:latest") == ("a", "a:code")
    assert (meaning("by-default"), meaning("by-path")) == (("a", "by-default"), ("b", "by-path"))
    assert list(catalog.names()) == [
        "a",
        "b",
        "c",
        "gpt",
        "a:latest",
        "shared",
        "a:code",
        "by-default",
        "by-path",
    ]


@pytest.mark.parametrize(
    ("ids", "aliases", "profiles", "conflict"),
    [
        (["a"], [("x", "a"), ("y*", "a")], ["a:code"], None),
        (["a"], [("a", "b")], [], "'a' is the name of a model and of an alias"),
        (["a"], [("a:latest", "b")], [], "'a' is the name of a model and of an alias"),
        (["a"], [("x", "a"), ("x", "b")], [], "'x' is the name of an alias and of an alias"),
        (["a"], [("x", "a"), ("x", "a")], [], None),
        (["a"], [("x", "a")], ["x"], "'x' is the name of an alias and of a profile"),
        (["a", "a:latest"], [], [], "'a' is the name of two models, in '0' and in '1'"),
        (["default"], [], [], None),
        (["a"], [], ["default"], "'default' is the name of a profile and of the first model"),
    ],
)
def test_two_things_of_one_name_are_a_conflict(
    ids: list[str], aliases: list[tuple[str, str]], profiles: list[str], conflict: str | None
) -> None:
    models = [(name, f"'{place}'") for place, name in enumerate(ids)]
    assert find_conflict(models, tuple(aliases), profiles) == conflict


def test_default_means_the_first_of_a_list_that_is_usable(tmp_path: Path) -> None:
    folders = [str(make_model(tmp_path / name)) for name in ("a", "b", "c")]
    failed: set[str] = set()
    catalog = Catalog(
        tuple(folders),
        cache=tmp_path / "cache",
        default=("nowhere", "b", folders[2]),
        failed=lambda entry: entry.id in failed,
    )

    def default() -> str:
        found = catalog.find("default")
        assert isinstance(found, CatalogEntry)
        return found.id

    assert default() == "b"
    failed.add("b")
    assert default() == "c"
    failed.add("c")
    assert default() == "b"  # whose error is then the answer
