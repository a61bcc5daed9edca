"""The answers of a remote to chats and raw text: events of each protocol, read as the neutral ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import attrs

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.remote_call import Events
from greenroom.schemas.events.events import FinishReason, Token, TokenLogprob, Usage
from greenroom.schemas.messages.messages import JsonObject

_REASONS: dict[str, FinishReason] = {
    **dict.fromkeys(("length", "max_tokens", "model_context_window_exceeded", "max_output_tokens"), "length"),
    **dict.fromkeys(("tool_calls", "tool_use"), "tool_calls"),
}
"""Finish reasons by their names in all protocols; others mean that the answer is complete."""
_AMOUNTS = {"prompt": ("prompt_tokens", "input_tokens"), "generated": ("completion_tokens", "output_tokens")}
_DETAILS = {
    "prompt": {"cached": "cached_tokens", "written": "cache_write_tokens", "images": "image_tokens"},
    "generated": {"reasoning": "reasoning_tokens"},
}
_RAW_LISTS = ("tokens", "token_logprobs", "top_logprobs")
_THOUGHTS = tuple(f"response.reasoning{kind}.delta" for kind in ("", "_text", "_summary_text"))


class ChatReader:
    """Reads the events of a chat, or of raw text.

    Args:
        choices: Number of requested choices.
    """

    def __init__(self, api: str, choices: int = 1) -> None:
        self._choices = [wire.Choice(index) for index in range(choices)]
        self._usage: JsonObject = {}
        # Numbers of calls by their blocks or items; None for blocks of another kind.
        self._calls: dict[Any, int | None] = {}
        self._of_kind = {"anthropic": self._of_message, "responses": self._of_response}.get(api)

    def read(self, data: JsonObject) -> Events:
        if self._of_kind is None:
            yield from self._of_chat(data)
        elif kind := wire.member(data, "type", str):
            yield from self._of_kind(kind, data, self._choices[0])
        else:
            raise wire.BrokenAnswer("an event without a type")

    def end(self) -> Events:
        usage = usage_of(self._usage)
        # The remote tells the sum over all choices.
        none = attrs.evolve(usage, generated=0, reasoning=0)
        yield from [choice.finish(none if choice.index else usage) for choice in self._choices]

    def _of_chat(self, data: JsonObject) -> Events:
        if "choices" not in data:
            raise wire.BrokenAnswer("a chunk without choices")
        if data.get("usage"):  # some tell it so far in every chunk
            self._usage = wire.member(data, "usage", dict)
        for found in wire.items_of(data, "choices"):
            index = wire.index_of(found.get("index", 0), len(self._choices))
            choice, delta = self._choices[index], wire.member(found, "delta", dict)
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            if isinstance(thought, str):
                yield from choice.think(thought)
            text = delta.get("content") or delta.get("refusal") or found.get("text")
            yield from choice.say(text, tuple(_logprobs(wire.member(found, "logprobs", dict))))
            for place, call in enumerate(wire.items_of(delta, "tool_calls")):
                number, arguments = call.get("index", place), wire.member(call, "function.arguments", str)
                if wire.index_of(number, choice.calls + 1) < choice.calls:  # no call is left out
                    yield from choice.go_on(number, arguments)
                else:
                    function = wire.member(call, "function", dict)
                    yield from choice.begin_call(function, call.get("id"), arguments)
            _take_reason(choice, found.get("finish_reason"), found.get("stop_reason"))

    def _of_message(self, kind: str, data: JsonObject, choice: wire.Choice) -> Events:
        match kind:
            case "message_start" | "message_delta":
                told = wire.member(data, "message.usage" if kind == "message_start" else "usage", dict)
                self._usage = {**self._usage, **wire.given(told)}
                delta = wire.member(data, "delta", dict)
                _take_reason(choice, delta.get("stop_reason"), delta.get("stop_sequence"))
            case "content_block_start" | "content_block_delta":
                place = wire.index_of(data.get("index"), wire.MAX_CALLS)
                part = wire.member(data, "content_block" if kind == "content_block_start" else "delta", dict)
                if kind == "content_block_start":
                    is_call = part.get("type") == "tool_use"
                    self._calls[place] = choice.calls if is_call else None
                    if is_call:
                        yield from choice.begin_call(part, part.get("id"))
                elif place not in self._calls:
                    raise wire.BrokenAnswer("a part of a block that has not begun")
                yield from choice.think(part.get("thinking"))
                yield from choice.say(part.get("text"))
                if (call := self._calls[place]) is not None:
                    yield from choice.go_on(call, part.get("partial_json"))
            case "message_stop":
                yield from self.end()
            case _:
                pass  # a ping, the end of a block, or what a newer version adds

    def _of_response(self, kind: str, data: JsonObject, choice: wire.Choice) -> Events:
        match kind:
            case kind if kind in _THOUGHTS:
                yield from choice.think(data.get("delta"))
            case "response.output_text.delta" | "response.refusal.delta":
                yield from choice.say(data.get("delta"))
            case "response.output_item.added":
                item = wire.member(data, "item", dict)
                if item.get("type") == "function_call":
                    self._calls[wire.member(item, "id", str) or f"item_{choice.calls}"] = choice.calls
                    yield from choice.begin_call(item, item.get("call_id"))
            case "response.function_call_arguments.delta":
                call = self._calls.get(wire.member(data, "item_id", str))
                if call is None:
                    raise wire.BrokenAnswer("arguments of a call that has not begun")
                yield from choice.go_on(call, data.get("delta"))
            case "response.completed" | "response.incomplete" | "response.failed":
                response = wire.member(data, "response", dict)
                if response.get("status") not in ("completed", "incomplete"):
                    raise wire.ReportedError(response.get("error"))
                self._usage = wire.member(response, "usage", dict)
                _take_reason(choice, wire.member(response, "incomplete_details.reason", str), None)
                yield from self.end()


def _take_reason(choice: wire.Choice, reason: Any, stop: Any) -> None:
    """Record the reason of a choice's end, if it is told."""
    if reason is not None:
        found = _REASONS.get(wire.typed(reason, str), "stop")
        choice.reason = "tool_calls" if choice.calls and found == "stop" else found
        choice.stop = stop if isinstance(stop, str) else None


def usage_of(told: JsonObject) -> Usage:
    """Return the usage in an answer, whose fields have several sets of names."""
    amounts: dict[str, int] = {}
    for amount, names in _AMOUNTS.items():
        name = next((name for name in names if name in told), names[0])
        amounts[amount] = wire.count_of(told.get(name))
        details = wire.member(told, f"{name}_details", dict)
        amounts |= {inner: wire.count_of(details.get(key)) for inner, key in _DETAILS[amount].items()}
    if "prompt_tokens" not in told:  # Anthropic's prompts count without what was cached
        for amount, kind in (("cached", "read"), ("written", "creation")):
            count = wire.count_of(told.get(f"cache_{kind}_input_tokens"))
            amounts = {**amounts, amount: amounts[amount] + count, "prompt": amounts["prompt"] + count}
    return Usage(**amounts)


def _logprobs(told: JsonObject) -> Iterator[TokenLogprob]:
    for entry in [*wire.items_of(told, "content"), *_raw_entries(told)]:
        yield TokenLogprob(*_token(entry), tuple(map(_token, wire.items_of(entry, "top_logprobs"))))


def _raw_entries(told: JsonObject) -> Iterator[JsonObject]:
    """Yield the tokens of raw text, which has lists beside each other, as a chat lists them."""
    tokens, values, tops = (wire.member(told, name, list) for name in _RAW_LISTS)
    for token, value, top in zip_longest(tokens, values[: len(tokens)], tops[: len(tokens)]):
        likely = [{"token": each, "logprob": most} for each, most in wire.typed(top, dict).items()]
        yield {"token": token, "logprob": value, "top_logprobs": likely}


def _token(entry: JsonObject) -> tuple[Token, float]:
    text, value = wire.member(entry, "token", str), wire.number_of(entry.get("logprob"))
    code = entry.get("bytes")
    is_code = isinstance(code, list) and all(type(each) is int and 0 <= each < 256 for each in code)
    token = Token(text, bytes(code or ()) if is_code else text.encode("utf-8", "replace"))
    return token, -9999.0 if value is None else value  # as OpenAI writes what is impossible
