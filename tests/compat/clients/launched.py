"""The clients of `greenroom launch`, really started: list of models, stream, call of a tool, second turn.

The model's weights are random, so a proxy turns the client's requests into constrained ones. The client
runs in a home folder with files of its user's, which must stay as they are.
"""

import json
import os

import pytest
from client_run import ClientRun
from terminal import end_daemons
from turning_proxy import ANSWER, MARKER, OUTPUT, Turner, turning_proxy

NAME = os.environ["GREENROOM_CLIENT"].removeprefix("launch-")
MODEL = "agent"
COMMAND = "echo $((6*7))-penguins"
FUNCTION = "def penguins() -> str:\n    return f'{6 * 7}-penguins'\n"
FIRST, SECOND = f"Please {MARKER} now.", "And what then?"
EDIT = r"note\.txt\n```\nwritten by aider\n```\n"

LISTING = {
    "claude": None,  # it asks at each start, if a variable says so
    "opencode": ("models",),
    "aider": ("--list-models", "openai/agent"),
    "llm": ("models",),
}
"""Arguments that print the models; the other clients have none without a terminal."""

TURNS = {
    "claude": (("-p", "--allowedTools", "Bash", "--", FIRST), ("-p", "--continue", SECOND)),
    "codex": (
        ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", FIRST),
        ("exec", "resume", "--last", "--skip-git-repo-check", SECOND),
    ),
    "opencode": (("run", FIRST), ("run", "--continue", SECOND)),
    "aider": (
        ("--yes-always", "--no-auto-commits", "--message", FIRST, "note.txt"),
        ("--yes-always", "--no-auto-commits", "--restore-chat-history", "--message", SECOND, "note.txt"),
    ),
    "cn": (("-p", "--auto", FIRST), ("-p", "--auto", "--resume", SECOND)),
    "cline": ((FIRST,), None),  # it goes on with a session only at a terminal
    "llm": (("prompt", "--functions", FUNCTION, FIRST), ("prompt", "--continue", SECOND)),
}

TOOLS = {
    "Bash": {"command": COMMAND, "description": "Count penguins"},
    "bash": {"command": COMMAND, "description": "Count penguins"},
    "exec_command": {"cmd": COMMAND},
    "shell_command": {"command": COMMAND},
    "run_commands": {"commands": [COMMAND]},
    "execute_command": {"command": COMMAND, "requires_approval": False},
    "penguins": {},
}
"""Arguments of the call, by the tools that run a command."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    turner = Turner(TOOLS, EDIT if NAME == "aider" else None)
    with turning_proxy(os.environ["GREENROOM_URL"], turner) as (address, exchanges):
        started = ClientRun(NAME, MODEL, tmp_path_factory.mktemp(NAME), address, exchanges)
        try:
            yield started
        finally:
            end_daemons(("--cline-hub-daemon", str(started.project)))


@pytest.fixture(scope="module")
def before(run):
    return run.snapshot()


@pytest.fixture(scope="module")
def first(run, before):
    """The first turn: exit status, text and exchanges."""
    return run.start(*TURNS[NAME][0])


def questions(exchanges):
    return [exchange for exchange in exchanges if exchange.is_question]


@pytest.mark.skipif(NAME not in LISTING, reason="the client lists models at a terminal only")
def test_it_lists_the_model(run, before):
    if NAME == "claude":
        _, _, exchanges = run.start(
            "-p",
            "Hello",
            CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY="1",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="",
        )
        assert any(each.path == "/v1/models" and each.status == 200 for each in exchanges)
        return
    status, text, _ = run.start(*LISTING[NAME])
    assert status == 0
    assert MODEL in text


def test_it_shows_a_streamed_answer(first):
    status, text, exchanges = first
    assert status == 0
    asked = questions(exchanges)
    assert asked
    assert [each.status for each in asked] == [200] * len(asked)
    assert all(each.pieces > 3 for each in asked if json.loads(each.sent).get("stream"))
    assert any(json.loads(each.sent).get("stream") for each in asked)
    assert NAME == "aider" or ANSWER in text


@pytest.mark.skipif(NAME == "aider", reason="it has no tools: it edits files")
def test_it_runs_a_tool_and_sends_the_result(first):
    asked = questions(first[2])
    forced = [place for place, each in enumerate(asked) if each.forced]
    assert forced
    assert any(OUTPUT in each.sent for each in asked[forced[0] + 1 :])


@pytest.mark.skipif(NAME != "aider", reason="it has tools")
def test_it_edits_a_file(run, first):
    assert (run.project / "note.txt").read_text() == "written by aider\n"


def test_a_second_turn_goes_on_with_the_first(run, first):
    if NAME == "cline":
        status, text, exchanges = run.converse("Ask anything", SECOND, "--id", session(run))
    else:
        status, text, exchanges = run.start(*TURNS[NAME][1])
    assert status == 0
    whole = [each for each in questions(exchanges) if SECOND in each.sent and MARKER in each.sent]
    assert whole
    assert all(each.status == 200 for each in whole)
    assert NAME == "aider" or (OUTPUT in whole[-1].sent and ANSWER.split()[0] in text)


def session(run):
    """Return the id of Cline's last session."""
    _, text, _ = run.start("history", "--json")
    return json.loads(text[text.index("[") : text.rindex("]") + 1])[0]["sessionId"]


def test_no_file_of_the_users_has_changed(run, before, first):
    assert run.snapshot() == before
