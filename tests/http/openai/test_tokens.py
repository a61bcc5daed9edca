"""Prompts as models read them, from `/tokenize`, `/detokenize` and `/apply-template`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared

MESSAGES = [{"role": "user", "content": "Hi <|im_end|> there"}]
NO_PROMPT = {"model": "qwen3", "add_generation_prompt": False}
TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {}}}]


async def post(served: Served, path: str, **body: Any) -> Any:
    answer = await fetch(served.server, "POST", path, body)
    assert answer.status == 200, answer
    return answer.json()


async def test_text_goes_to_tokens_and_back_without_weights(settings: Settings) -> None:
    async with serving(settings) as served:
        made = await post(served, "/tokenize", model="qwen3", prompt="Hi thére", return_token_strs=True)
        back = await post(served, "/detokenize", model="qwen3", tokens=made["tokens"])
        pieces = await post(served, "/tokenize", content="Hi thére", with_pieces=True)
        halves = await post(served, "/tokenize", content="\u6d77 \U0001f30a", with_pieces=True)
        shown = await post(served, "/tokenize", content="\u6d77 \U0001f30a", return_token_strs=True)
        nothing = await post(served, "/detokenize", tokens=[])
        no_text = [await post(served, "/tokenize", **{name: ""}) for name in ("prompt", "content")]
        begun = [*MESSAGES, {"role": "assistant", "content": "We"}]
        continued = await post(
            served,
            "/apply-template",
            messages=begun,
            continue_final_message=True,
            add_generation_prompt=False,
        )
        status = await served.system.pool.ask(DescribePool(), PoolStatus)
    assert made["count"] == len(made["tokens"]) == len(made["token_strs"]) > 0
    assert made["max_model_len"] > 0
    assert back == {"prompt": "Hi thére", "content": "Hi thére"}
    assert [piece["id"] for piece in pieces["tokens"]] == made["tokens"]
    assert "".join(piece["piece"] for piece in pieces["tokens"][:1]) == made["token_strs"][0]
    written = [piece["piece"] for piece in halves["tokens"]]
    assert any(isinstance(piece, list) for piece in written)
    whole = b"".join(bytes(piece) if isinstance(piece, list) else piece.encode() for piece in written)
    assert whole.decode() == "\u6d77 \U0001f30a"
    assert "\ufffd" not in "".join(shown["token_strs"])
    assert any(re.fullmatch("(<0x[0-9A-F]{2}>)+", text) for text in shown["token_strs"])
    assert nothing["prompt"] == ""
    assert [(made["count"], made["tokens"]) for made in no_text] == [(0, [])] * 2
    assert continued["prompt"].endswith("We")
    assert isinstance(status, PoolStatus)
    assert not any(model.state is ModelState.READY for model in status.models)


async def test_many_tokens_are_told_from_another_thread(settings: Settings, shared: Shared) -> None:
    text = "The sea is wide. " * 3_000
    served = shared(settings)
    made = await post(served, "/tokenize", content=text, with_pieces=True)
    ids = await post(served, "/tokenize", content=text)
    assert made["count"] == len(made["tokens"]) > 4_096
    assert "".join(token["piece"] for token in made["tokens"]).strip() == text.strip()
    assert [token["id"] for token in made["tokens"]] == ids["tokens"]


async def test_a_conversation_is_shown_as_the_template_writes_it(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    chat: Any = {"model": "qwen3", "messages": MESSAGES, "tools": TOOLS, "enable_thinking": False}
    shown = await post(served, "/apply-template", **chat)
    made = await post(served, "/tokenize", **chat)
    answer = await post(served, "/v1/chat/completions", **chat, max_tokens=1)
    assert "<|im_start|>user\nHi <|im_end|> there<|im_end|>\n<|im_start|>assistant\n" in shown["prompt"]
    assert '"now"' in shown["prompt"]
    assert made["count"] == answer["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"model": "nothing", "prompt": "a"}, 404, "nothing"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"prompt": 5}, 400, "prompt"),
        ("/tokenize", {"content": "a", "parse_special": False}, 400, "parse_special"),
        ("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False}, 400, "add_generation_prompt"),
        (
            "/apply-template",
            {"messages": MESSAGES, "add_generation_prompt": False},
            400,
            "add_generation_prompt",
        ),
        ("/v1/chat/completions", {"messages": MESSAGES, **NO_PROMPT}, 400, "add_generation_prompt"),
        (
            "/v1/chat/completions",
            {
                "model": "qwen3",
                "messages": MESSAGES,
                "add_generation_prompt": True,
                "continue_final_message": True,
            },
            400,
            "add_generation_prompt",
        ),
        ("/detokenize", {"tokens": [1], "model": "nothing"}, 404, "nothing"),
        ("/detokenize", {"tokens": [], "model": "nothing"}, 404, "nothing"),
        ("/detokenize", {"tokens": [10**9]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [1] * 32_769}, 400, "32769 tokens"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens[0]"),
        ("/apply-template", {"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ("/apply-template", {}, 400, "messages"),
    ],
)
async def test_what_is_wrong_is_named(
    settings: Settings, shared: Shared, path: str, body: dict[str, Any], status: int, named: str
) -> None:
    served = shared(settings)
    answer = await fetch(served.server, "POST", path, body)
    assert answer.status == status
    assert named in answer.json()["error"]["message"]
