"""Settings that are made for other people's clients, and their start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import attrs
import psutil
import pytest

from greenroom.http.clients.connected import connected_names, lines_for
from greenroom.http.clients.launched import LAUNCHED
from greenroom.http.clients.server_facts import ServerFacts, facts_of
from greenroom.http.process.runtime_file import running_servers
from greenroom.tests.support.servers.bounded_waits import PATIENCE, wait_until
from greenroom.tests.support.servers.server_processes import GREENROOM, run_greenroom, serving

SERVER = ServerFacts("http://127.0.0.1:8123", "org/model's", "a-secret-key", 40_960, sees=True, thinks=True)
FOLDER = Path("/a folder")
CLIENT = """#!/bin/sh
cat "$LLM_USER_PATH/default_model.txt"
echo " $*"
exit 7
"""


def test_an_address_may_end_as_openais_clients_write_it() -> None:
    printed = run_greenroom("connect", "openai", "--url", "http://127.0.0.1:9/v1/")
    assert "export OPENAI_BASE_URL=http://127.0.0.1:9/v1\n" in printed.stdout
    assert "those below are guesses" in printed.stderr


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")
    (tmp_path / "run").mkdir(mode=0o700)
    variables = {"XDG_DATA_HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    refused = run_greenroom("launch", "--print", "llm", **variables)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Not a directory" in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("name", LAUNCHED)
def test_settings_name_server_model_and_context_and_no_command_line_shows_the_key(name: str) -> None:
    started = LAUNCHED[name].make(SERVER, FOLDER, ("--its", "own words"))
    told = [*started.command, *started.environment.values(), *started.files.values()]
    for file in started.files.values():
        if file.startswith(("{", "[")):
            json.loads(file)
    assert tuple(started.command[-2:]) == ("--its", "own words")
    for known in ("8123", "org/model's", "a-secret-key"):
        assert any(known in text for text in told), known
    assert not any("a-secret-key" in word for word in started.command)
    if name != "llm" and name != "cline":  # these have no setting for it
        assert any("40960" in text for text in told)
    # All that it keeps is in its own folder.
    assert any(str(FOLDER) in text for text in told)


def test_files_are_private_and_replace_old_ones_whole(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cline"
    started = LAUNCHED["cline"].make(SERVER, folder, ())
    for _ in range(2):
        started.write(folder)
    [file] = (path for path in folder.rglob("*") if path.is_file())
    assert file.stat().st_mode & 0o077 == folder.stat().st_mode & 0o077 == 0
    stranger = tmp_path / "theirs"
    stranger.write_text("theirs")
    file.unlink()
    file.symlink_to(stranger)
    started.write(folder)
    assert stranger.read_text() == "theirs"


@pytest.mark.parametrize("name", connected_names())
def test_lines_to_paste_name_the_server_and_leave_nothing_open(name: str) -> None:
    text = lines_for(name, attrs.evolve(SERVER, model="org/model"))
    if name not in LAUNCHED:
        for hostile in ("$(reboot)", "a;b", "a b", 'a"b', "a'b", "a\nb", "-a", ""):
            with pytest.raises(ValueError, match="alias"):
                lines_for(name, attrs.evolve(SERVER, model=hostile))
    assert "8123" in text
    if name not in ("xcode",):  # it lists the models itself
        assert "org/model" in text or name in ("open-webui", "openai-agents")
    values = ("$url", "$base", "$key", "$model", "$context", "$answer", "$tools", "$images", "$prompt")
    assert not any(value in text for value in values)


@pytest.mark.parametrize(("url", "port"), [("https://studio.local", "443"), ("http://[::1]:8123", "8123")])
def test_xcode_is_told_a_port_even_if_the_address_has_none(url: str, port: str) -> None:
    assert f"port {port}\n" in lines_for("xcode", attrs.evolve(SERVER, url=url, model="org/model"))


def test_facts_come_from_a_models_description() -> None:
    listed = {"id": "a", "context_length": 100, "tools": False, "thinking": None}
    facts = facts_of("http://a", "k", listed)
    assert (facts.context, facts.takes_tools, facts.thinks, facts.sees) == (100, False, False, False)
    assert facts_of("http://a", "k", {"id": "a"}).tokens > 0


@pytest.mark.deep
def test_a_client_gets_a_server_for_its_time_and_its_status_is_passed_on(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "llm"
    program.parent.mkdir()
    program.write_text(CLIENT)
    program.chmod(0o755)
    variables = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }
    (tmp_path / "run").mkdir(mode=0o700)
    alone = run_greenroom("launch", "llm", "say", "hi", **variables)
    assert (alone.returncode, alone.stdout) == (7, "greenroom-demo say hi\n"), alone.stderr
    assert "no server runs" in alone.stderr
    missing = run_greenroom("launch", "codex", **{**variables, "PATH": "/nowhere"})
    assert (missing.returncode, "npm install -g @openai/codex" in missing.stderr) == (127, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_server_starts_leaves_no_server(tmp_path: Path, number: int) -> None:
    program = tmp_path / "bin" / "llm"
    program.parent.mkdir()
    program.write_text(CLIENT)
    program.chmod(0o755)
    (tmp_path / "run").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "settings.toml")  # the server waits for somebody to write them
    variables = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "GREENROOM_CONFIG": str(tmp_path / "settings.toml"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }
    log = tmp_path / "data" / "greenroom" / "clients" / "llm" / "server.log"
    with subprocess.Popen([*GREENROOM, "launch", "llm"], env=variables, stderr=subprocess.PIPE) as process:
        wait_until(log.exists)
        server = psutil.Process(process.pid).children
        wait_until(server)
        [child] = server()
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    wait_until(lambda: not child.is_running())


@pytest.mark.deep
def test_a_client_joins_a_running_server_with_a_key_that_print_does_not_show(tmp_path: Path) -> None:
    variables = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with serving("--db", str(tmp_path / "db")) as server:
        [own] = (each for each in running_servers() if server.address in each.addresses)
        printed = run_greenroom("launch", "--print", "codex", "exec", "say hi", **variables)
        assert printed.returncode == 0, printed.stderr
        for word in (server.address, "greenroom-demo", "2048", "'say hi'", "GREENROOM_API_KEY=KEY"):
            assert word in printed.stdout
        assert own.key not in printed.stdout
        assert not (tmp_path / "data").exists()
        unknown = run_greenroom("launch", "--print", "--model", "none", "codex")
        assert (unknown.returncode, "no model 'none'" in unknown.stderr) == (1, True)
        connected = run_greenroom("connect", "zed")
        assert '"max_tokens": 2048' in connected.stdout
    assert run_greenroom("connect", "nothing").returncode == 2
