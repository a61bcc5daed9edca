"""The server's additions to the client's system message."""

from __future__ import annotations

import attrs
import pytest

from greenroom.engine.adapters.prompt_renderer import SystemMessages
from greenroom.schemas.messages.messages import Message, Role, TextPart
from greenroom.schemas.messages.requests import VERBOSITIES, ChatInput

USER = Message("user", (TextPart("one"),))
OWN = Message("system", (TextPart("Own."),))


def told(chat: ChatInput, default: str = "") -> list[tuple[Role, str]]:
    return [(message.role, message.text) for message in SystemMessages(default).complete(chat).messages]


def test_nothing_is_added_where_nothing_was_asked_for() -> None:
    chat = ChatInput((USER,))
    assert SystemMessages().complete(chat) is chat


@pytest.mark.parametrize("messages", [(OWN, USER), (USER, OWN)])
def test_a_system_message_anywhere_is_a_client_s_own(messages: tuple[Message, ...]) -> None:
    assert SystemMessages("Default.").complete(ChatInput(messages)).messages == messages


def test_the_default_stands_first() -> None:
    assert told(ChatInput((USER,)), "Default.") == [("system", "Default."), ("user", "one")]


def test_how_much_to_say_ends_the_system_message() -> None:
    short = "Keep your answers short."
    low = ChatInput((USER,), verbosity="low")
    assert told(low) == [("system", short), ("user", "one")]
    assert told(low, "Default.")[0] == ("system", f"Default.\n\n{short}")
    assert told(attrs.evolve(low, messages=(OWN, USER)))[0] == ("system", f"Own.\n\n{short}")
    assert told(attrs.evolve(low, messages=(USER, OWN)))[0] == ("system", short)


def test_every_other_amount_than_medium_is_told() -> None:
    texts = {value: told(ChatInput((OWN,), verbosity=value))[0][1] for value in VERBOSITIES}
    assert len(set(texts.values())) == 3
    assert texts["medium"] == "Own."
