"""The operator's system prompt: conversations keep the one they began with, even over restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import Served, serving

BRIEF = "Be brief."
LONG = "Answer in long sentences, and tell where you know it from."
QUESTION: list[Any] = [{"role": "user", "content": "And the sky?"}]

Setting = Callable[[str | None], Settings]


@pytest.fixture
def setting(settings: Settings, tmp_path: Path) -> Setting:
    """Return a function that makes settings with a system prompt and the same database."""
    settings = attrs.evolve(settings, db=str(tmp_path / "store.db"))
    file = tmp_path / "prompt"

    def change(text: str | None) -> Settings:
        if text is None:
            return settings
        file.write_text(text)
        return attrs.evolve(settings, system_prompt=str(file))

    return change


async def respond(served: Served, asked: Any = "Hi", **fields: Any) -> Any:
    wanted = {"model": "qwen3", "max_output_tokens": 2, "temperature": 0, "input": asked, **fields}
    return await ask(served, lambda client: client.responses.create(**wanted))


async def tokens(served: Served, **fields: Any) -> int:
    """Return the number of prompt tokens, after checking the count against that of a real answer."""
    wanted: Any = {"model": "qwen3", "input": QUESTION, **fields}
    counted = await ask(served, lambda client: client.responses.input_tokens.count(**wanted))
    answer = await respond(served, QUESTION, store=False, **fields)
    assert answer.usage.input_tokens == counted.input_tokens
    return int(counted.input_tokens)


async def told(served: Served, prompt: str, first: Any, **fields: Any) -> int:
    """Return the number of prompt tokens of a second turn with this system prompt."""
    said: list[Any] = [{"role": "user", "content": "Hi"}, *(item.to_dict() for item in first.output)]
    system: list[Any] = [{"role": "system", "content": prompt}] if prompt else []
    counted = await ask(
        served,
        lambda client: client.responses.input_tokens.count(
            model="qwen3", input=[*system, *said, *QUESTION], **fields
        ),
    )
    return int(counted.input_tokens)


@pytest.mark.parametrize("began_with", [BRIEF, pytest.param(None, marks=pytest.mark.deep)])
async def test_later_turns_keep_the_system_prompt_though_the_setting_changes(
    setting: Setting, began_with: str | None
) -> None:
    async with serving(setting(began_with)) as served:
        made = await ask(served, lambda client: client.conversations.create())
        joined = await respond(served, conversation=made.id)
        first = await respond(served)
        second = await respond(served, "Go on", previous_response_id=first.id)
    prompt = began_with or ""
    async with serving(setting(None)) as bare:
        expected = {one.id: await told(bare, prompt, one) for one in (joined, first)}
        otherwise = {one.id: await told(bare, LONG, one) for one in (joined, first)}
    async with serving(setting(LONG)) as served:
        for fields, one in (
            ({"conversation": made.id}, joined),
            ({"conversation": made.id, "previous_response_id": joined.id}, joined),
            ({"previous_response_id": joined.id}, joined),
            ({"previous_response_id": first.id}, first),
        ):
            assert await tokens(served, **fields) == expected[one.id] != otherwise[one.id], fields
        third = await respond(served, "Go on", previous_response_id=second.id)
        # A branch made on this server keeps the old prompt too.
        branch = await respond(served, QUESTION, previous_response_id=first.id)
        assert branch.usage.input_tokens == expected[first.id]
        background = await respond(served, previous_response_id=third.id, background=True)
        assert background.id
    async with serving(setting(None)) as served:
        assert await tokens(served, previous_response_id=first.id) == expected[first.id]
        items = await ask(served, lambda client: list(client.conversations.items.list(made.id)))
        assert all(getattr(item, "role", None) != "system" for item in items)
        listed = await ask(served, lambda client: list(client.responses.input_items.list(first.id)))
        assert len(listed) == 1
        # Deleting all its responses deletes the stored prompt.
        await ask(served, lambda client: client.conversations.delete(made.id))
        for response in (joined, first, second):
            await ask(served, lambda client: client.responses.delete(response.id))  # noqa: B023
        with pytest.raises(openai.NotFoundError):
            await respond(served, previous_response_id=first.id)


async def test_a_turns_own_instructions_go_before_what_is_kept(setting: Setting) -> None:
    async with serving(setting(BRIEF)) as served:
        first = await respond(served)
        instructed = await respond(served, instructions="Speak Latin.")
    async with serving(setting(None)) as bare:
        latin = await told(bare, "Speak Latin.", first)
        later = await told(bare, LONG, instructed)
    async with serving(setting(LONG)) as served:
        assert await tokens(served, previous_response_id=first.id, instructions="Speak Latin.") == latin
        # A turn with its own instructions fixes no system prompt, so the next turn gets the current one.
        assert await tokens(served, previous_response_id=instructed.id) == later
        second = await respond(served, QUESTION, previous_response_id=instructed.id)
        assert second.usage.input_tokens == later
    async with serving(setting(BRIEF)) as served:
        third = await respond(served, "Hm?", previous_response_id=second.id)
        fields: Any = {"input": "Hm?", "previous_response_id": second.id, "model": "qwen3"}
        system: Any = {"instructions": LONG}
        counted = await ask(served, lambda client: client.responses.input_tokens.count(**fields, **system))
        assert third.usage.input_tokens == counted.input_tokens
