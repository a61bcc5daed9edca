"""Settings from a file, the environment and flags; an invalid one is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner

from greenroom.http.command_line import EngineModels
from greenroom.http.commands.serve import FLAGS, command
from greenroom.http.settings.check_value import FIELDS, check_value
from greenroom.http.settings.sources import BadSettingError, settings_options
from greenroom.schemas.settings.settings import GROUPS, ModelSettings, Settings

ALL = tuple(FIELDS)


def load(*arguments: str, **variables: str) -> Settings:
    """Return the settings of a command with these arguments and variables."""
    loaded: list[Settings] = []
    command = click.command()(settings_options(*ALL)(lambda settings: loaded.append(settings)))
    environment: dict[str, str | None] = {"GREENROOM_DEVICE": None}  # the test run may set this variable
    environment |= {f"GREENROOM_{name.upper()}": value for name, value in variables.items()}
    result = CliRunner().invoke(command, arguments, env=environment, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return loaded[0]


def file(folder: Path, text: str) -> str:
    (folder / "settings.toml").write_text(text)
    return str(folder / "settings.toml")


def test_without_sources_the_defaults_hold() -> None:
    assert load() == Settings()


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    config = file(tmp_path, "port = 1\nmax_batch = 2\nshutdown_timeout = 3\nmax-loaded-models = 4")
    settings = load("--config", config, "--port", "11", port="12", max_batch="13")
    assert (settings.port, settings.max_batch, settings.shutdown_timeout, settings.max_loaded_models) == (
        11,
        13,
        3.0,
        4,
    )


def test_the_file_is_found_in_its_usual_place_and_through_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "greenroom").mkdir()
    file(tmp_path / "greenroom", "port = 1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load().port == 1
    assert load(config=file(tmp_path, "port = 2")).port == 2


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("models", "a/b, ~/models/c", ("a/b", "~/models/c")),
        ("tool_injection", "off", False),
        ("trust_remote_code", "true", True),
        ("max_context", "4096", 4096),
        ("temperature", "0", 0.0),
        ("log_format", "json", "json"),
    ],
)
def test_variables_are_converted(name: str, text: str, value: object) -> None:
    assert getattr(load(**{name: text}), name) == value


def test_a_group_in_the_file_is_a_way_to_write_names_that_begin_alike(tmp_path: Path) -> None:
    settings = load("--config", file(tmp_path, "[store]\nresponses = false\nretention-days = 3"))
    assert (settings.store_responses, settings.store_retention_days) == (False, 3.0)
    assert load("--config", file(tmp_path, "store.retention_days = 5")).store_retention_days == 5.0
    audited = load("--config", file(tmp_path, "[audit]\ncontent = true\nrows = 5"))
    assert (audited.audit, audited.audit_content, audited.audit_rows) == (True, True, 5)
    assert not load("--config", file(tmp_path, "audit = false")).audit
    with pytest.raises(BadSettingError, match="there is no setting 'store_day'"):
        load("--config", file(tmp_path, "[store]\nday = 3"))


def test_lists_in_the_file_and_repeated_flags(tmp_path: Path) -> None:
    config = file(tmp_path, 'models = ["a", "b"]\nallowed_hosts = ["x"]')
    settings = load("--config", config, "--allowed-hosts", "y", "--allowed-hosts", "z")
    assert settings.models == ("a", "b")
    assert settings.allowed_hosts == ("y", "z")


def test_a_table_is_read_from_file_variable_and_flags(tmp_path: Path) -> None:
    config = file(
        tmp_path, '[model.a]\nalias = "gpt-4o"\nvision = "off"\n[model."org/*".images]\nmax-count = 2'
    )
    of_file = (
        ("a", ModelSettings(alias=("gpt-4o",), vision=False)),
        ("org/*", ModelSettings(images_max_count=2)),
    )
    assert load("--config", config).model_settings == of_file
    variable = "a:alias=gpt-4o, claude:3:kv-bits=8"
    assert load(model_settings=variable).model_settings == (
        ("a", ModelSettings(alias=("gpt-4o",))),
        ("claude:3", ModelSettings(kv_bits=8)),
    )


def test_entries_of_flags_and_variables_replace_single_settings_of_the_files_tables(tmp_path: Path) -> None:
    config = file(tmp_path, "[model.a]\nkv_bits = 4\nttl = 60\nmax_context = 100")
    flags = ("--config", config, "--model-settings", "a:kv_bits=8", "--model-settings", "*:top_k=3")
    settings = load(*flags, model_settings="a:ttl=30,a:kv_bits=4")
    assert settings.of_model("a") == ModelSettings(kv_bits=8, ttl=30.0, max_context=100, top_k=3)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("port", "70000", "a whole number, 0 to 65535"),
        ("port", "80.5", "a whole number"),
        ("port", "", "a whole number"),
        ("max_batch", "0", "at least 1"),
        ("shutdown_timeout", "-1", "a number, 0 to 86400"),
        ("shutdown_timeout", "nan", "a number, 0 to 86400"),
        ("device", "tpu", "one of auto, cpu, gpu"),
        ("dtype", "int8", "one of auto, float32, bfloat16, float16"),
        ("max_context", "1", "at least 16"),
        ("tool_injection", "maybe", "true or false"),
        ("top_p", "-1", "0 to 1"),
        ("temperature", "2.5", "0 to 2"),
    ],
)
def test_a_bad_variable_is_named_with_what_it_must_be(name: str, text: str, expected: str) -> None:
    with pytest.raises(BadSettingError, match=f"GREENROOM_{name.upper()} = {text!r}: must be .*{expected}"):
        load(**{name: text})


@pytest.mark.parametrize("entry", ["gpt-4o", "a:kv_bits", ":kv_bits=8", "a=8"])
def test_an_entry_of_a_model_must_name_model_and_setting(entry: str) -> None:
    with pytest.raises(BadSettingError, match="must be NAME:SETTING=VALUE, such as org/name:kv_bits=8"):
        load(model_settings=entry)
    with pytest.raises(click.BadParameter, match="must be NAME:SETTING=VALUE"):
        load("--model-settings", entry)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port = 5.5", "port = 5.5: must be a whole number"),
        ("port = true", "port = True: must be a whole number"),
        ("host = 5", "host = 5: must be a string"),
        ("api_key = 5", "settings.toml: api_key: must be a string"),
        ("models = [1]", r"models = \[1\]: must be a list of strings"),
        ("prot = 5", "there is no setting 'prot' .did you mean 'port'"),
        ("model.x = 5", r'model must be tables with a name, such as \[model."org/name"\]'),
        ("[model.x]\nkv_bits = 5", 'model."x": kv_bits = 5: must be a whole number, 4 or 8'),
        (
            "[model.x]\nkv_bit = 5",
            "model.\"x\": there is no setting 'kv_bit' of a model .did you mean 'kv_bits'",
        ),
        ("[model.x]\nalias = [5]", "must be a list of strings"),
        ('[model."*"]\nalias = "a"', "this name is a pattern"),
        ("[model.default]\nttl = 5", "ttl needs the model's own name"),
        ("[server]\nport = 5", "there is no setting 'server'"),
        ("port = ", "settings.toml: "),
    ],
)
def test_a_bad_file_is_named_with_the_key(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(BadSettingError, match=expected):
        load("--config", file(tmp_path, text))


def test_a_file_that_was_asked_for_must_exist() -> None:
    with pytest.raises(BadSettingError, match="nowhere"):
        load("--config", "/nowhere.toml")


@pytest.mark.parametrize(
    "flag",
    ["--port=70000", "--port=x", "--device=tpu", "--shutdown-timeout=-1", "--max-batch=0", "--kv-bits=5"],
)
def test_a_bad_flag_is_refused(flag: str) -> None:
    with pytest.raises(click.BadParameter):
        load(flag)


@pytest.mark.parametrize("bad", [{"GREENROOM_PORT": "x"}, {"GREENROOM_CONFIG": "/nowhere.toml"}])
def test_a_bad_setting_is_one_line_and_never_breaks_help(bad: dict[str, str]) -> None:
    command = [sys.executable, "-m", "greenroom.http.command_line", "serve"]
    started = subprocess.run(command, env=bad, capture_output=True, text=True)
    assert started.returncode == 2
    assert started.stdout == ""
    assert len(started.stderr.splitlines()) == 1
    assert started.stderr.startswith("greenroom: ")
    helped = subprocess.run([*command, "--help"], env=bad, capture_output=True, text=True)
    assert helped.returncode == 0
    assert "--max-batch" in helped.stdout


def test_every_setting_but_the_models_is_a_flag_of_serve() -> None:
    from greenroom.http.commands.serve import command

    flags = {parameter.name for parameter in command.params}
    assert flags >= set(ALL)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("8GB", 8_000_000_000),
        ("8 gib", 8 << 30),
        ("1.5G", 1_500_000_000),
        ("512MiB", 512 << 20),
        ("300000k", 300_000_000),
        ("2097152", 2 << 20),
        (2 << 20, 2 << 20),
    ],
)
def test_sizes_may_have_units(written: Any, size: int) -> None:
    assert check_value("memory_bytes", written) == size


@pytest.mark.parametrize("written", ["8XB", "GB", "-1GB", "1e9", "8GB!", 8.5, True])
def test_what_is_no_size_is_refused_in_words(written: Any) -> None:
    with pytest.raises(ValueError, match="bytes, or a size such as 8GB or 512MiB"):
        check_value("memory_bytes", written)


def test_every_flag_of_serve_stands_in_one_group() -> None:
    groups = chain.from_iterable(GROUPS.values())
    grouped = Counter(field.name for group in groups for field in attrs.fields(group))
    assert set(grouped) == {*FLAGS, "models"}
    assert set(grouped.values()) == {1}


def test_the_help_lists_the_groups_and_shows_sizes_as_people_write_them() -> None:
    shown = CliRunner().invoke(command, ["--help"], obj=EngineModels(), terminal_width=100).output
    titles = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":") and line[0].isupper()]
    assert [title for title in titles if title in GROUPS] == list(GROUPS)
    assert "default: 1GiB" in shown
    assert "--config" in shown[shown.index("Other options:") :]
