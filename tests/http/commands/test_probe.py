"""`greenroom probe` as a process: servers follow its findings, and probe models themselves."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import httpx2
import openai
import pytest

from greenroom.tests.support.models.calling_models import CallingModel, make_calling_model
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.mark.deep
def test_a_server_reads_the_calls_that_a_probe_has_found(tmp_path: Path) -> None:
    folder = str(make_calling_model(CallingModel("strayed", "qwen", "qwen3", "llama_xml"), tmp_path))
    database = str(tmp_path / "db")
    done = run_greenroom("probe", folder, "--db", database, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["tool_parser_id"], found["model_family"]) == ("llama_xml", "qwen")
    with serving(folder, "--db", database, "--no-store-responses") as server:
        with openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", timeout=600) as client:
            answer = client.chat.completions.create(
                model="default",
                messages=[{"role": "user", "content": "What is the weather in Quito?"}],
                tools=[TOOL],  # type: ignore[list-item]
            )
        shown = httpx2.get(f"{server.address}/v1/models", timeout=600).json()["data"]
    [call] = answer.choices[0].message.tool_calls or []
    assert call.to_dict()["function"] == {"name": "get_weather", "arguments": '{"city": "Quito"}'}
    assert shown[0]["capabilities"]["probed"] is True
    assert "model not probed" not in [line["event"] for line in server.log]


@pytest.mark.deep
def test_the_server_that_has_the_database_open_probes_the_model(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder, database = str(tiny_model("qwen3")), str(tmp_path / "db")
    probe = ("probe", folder, "--db", database, "--max-tokens", "4")
    with serving(folder, "--db", database) as server:
        body = {"model": "default", "input": "Hello", "max_output_tokens": 16}
        httpx2.post(f"{server.address}/v1/responses", json=body, timeout=600).raise_for_status()
        lost = run_greenroom(*probe, "--url", "http://127.0.0.1:9")
        by_name = ("probe", "qwen3", *probe[2:])
        done = run_greenroom(*by_name, "--url", server.address, "--json")
        shown = httpx2.get(f"{server.address}/v1/models", timeout=600).json()["data"]
        other = shutil.copytree(folder, tmp_path / "other" / "qwen3")
        mistaken = run_greenroom("probe", str(other), "--db", database, "--url", server.address)
        with serving(folder, "--db", str(tmp_path / "elsewhere")) as elsewhere:
            astray = run_greenroom(*probe, "--url", elsewhere.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["model_family"] == "qwen"
    assert shown[0]["capabilities"]["probed"] is True
    for refused, named in (
        (lost, "no Greenroom server answers at http://127.0.0.1:9"),
        (mistaken, "the server means another folder by 'qwen3'"),
        (astray, "but not the one at"),
    ):
        assert (refused.returncode, refused.stdout) == (1, "")
        assert named in refused.stderr
    # A killed server does not count; its log names a command that needs no server.
    [hint] = [line["hint"] for line in server.log if line["event"] == "model not probed"]
    assert shlex.split(hint) == ["greenroom", "probe", folder]
    after = run_greenroom(*probe)
    assert after.returncode == 0
    assert "tool_parser_id" not in after.stdout
    assert "model_family: qwen\n" in after.stdout


def test_what_cannot_be_probed_is_one_line(tmp_path: Path) -> None:
    for arguments, status, named in (
        (("--db", ":memory:"), 2, "--db must be a file"),
        (("--max-tokens", "0"), 2, "--max-tokens"),
        ((), 2, "config.json"),
    ):
        refused = run_greenroom("probe", str(tmp_path), *arguments)
        assert refused.returncode == status
        assert named in refused.stderr.splitlines()[-1]
    (tmp_path / "greenroom").write_bytes(b"")
    homeless = run_greenroom("probe", "greenroom-demo", XDG_DATA_HOME=str(tmp_path))
    assert (homeless.returncode, homeless.stderr.count("\n")) == (2, 1)
    assert "greenroom.db': " in homeless.stderr
