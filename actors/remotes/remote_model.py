"""The actor of a model that lives elsewhere: sends requests to its remote, and passes on the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.model.model import Lifecycle
from greenroom.actors.model.model_loop import Cancel, Command, Submit
from greenroom.actors.model.model_requests import ModelRequests
from greenroom.actors.model.running_requests import Preparation, records_of
from greenroom.actors.remotes import chat_calls, media_calls
from greenroom.actors.remotes.remote_call import Call, CallFailure, given, parameters_of, unsupported
from greenroom.actors.remotes.remote_servers import RemoteServer
from greenroom.engine.catalog.operator_texts import system_prompt_of
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, Timing, Usage
from greenroom.schemas.events.explanation import Explanation
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages import requests as asks
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, ProblemError, internal_error, model_crashed
from greenroom.schemas.protocols import model_protocol as protocol
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.setting_groups import GenerationDefaults

if TYPE_CHECKING:
    from greenroom.actors.engines.engines import Engines

CHARACTERS_PER_TOKEN = 4
"""Characters of a token, for estimates where only the remote can count."""
_COMMON = ("temperature", "top_p", "max_tokens")
_CALLS: dict[type[Any], Callable[..., Call]] = {
    ChatInput: chat_calls.chat_call,
    RawInput: chat_calls.raw_call,
    asks.EmbeddingInput: media_calls.embedding_call,
    asks.ScoreInput: media_calls.score_call,
    asks.SpeechInput: media_calls.speech_call,
    asks.TranscriptionInput: media_calls.transcription_call,
}


@attrs.frozen
class _Prepared:
    """A prepared request, whose prompt only its remote can count."""

    call: Call
    choices: int
    system_prompt: str | None = None
    parameters: GenerationParameters | None = None
    prompt_tokens: int = 0
    dropped_messages: int = 0
    notice: str = ""


class RemoteModel:
    """The actor of a remote model. It takes no memory here, and has slots of its own.

    Args:
        there: Name of the model in the remote.
        report: Callback for reports; must not block.
    """

    takes_room = False
    released = True

    def __init__(
        self,
        key: ModelKey,
        state: ModelState,
        report: Callable[[protocol.ModelReport], None],
        server: RemoteServer,
        there: str,
        engines: Engines,
    ) -> None:
        from greenroom.actors.remotes.remote_client import RemoteClient

        self.key, self.slots = key, server.remote.slots
        self._server, self._there, self._report = server, there, report
        self._names, self._records = engines.names, records_of(engines, server.name)
        self._lifecycle = Lifecycle(state)
        self._inbox: Inbox[protocol.ModelMessage] = Inbox()
        self.ref: Ref[protocol.ModelMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._log = get_logger().bind(actor="remote", model=str(key), remote=server.name)
        self._client = RemoteClient(server.name, server.remote, server.record_traffic)
        self._scopes: dict[str, trio.CancelScope] = {}
        self._requests = ModelRequests(
            self._prepare,
            self._take,
            lambda closed: self._requests.close(closed.request),
            report,
            self._log,
            self._records,
        )

    def send(self, command: protocol.ModelCommand) -> None:
        self._control.send(command)

    async def wait_released(self) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        problem = model_crashed(self.key.model)
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._inbox.forward, self._control)
                while self._receive(await self._control.receive()):
                    pass
                self._nursery.cancel_scope.cancel("the model actor stops")
        finally:
            self._requests.end(problem)
            self._control.close(problem)
            await self._client.aclose()

    def _receive(self, received: Any) -> bool:
        crashed = model_crashed(self.key.model)
        match received:
            case Envelope(protocol.Prepare(request), reply):
                self._requests.prepare(Preparation(request, reply or Reply()))
            case Envelope(protocol.Generate() as message, reply):
                self._requests.generate(message, reply or Reply(), crashed)
            case Envelope(_, reply):
                (reply or Reply()).fail(crashed)
            case protocol.Load() if self._lifecycle.state is not ModelState.READY:
                self._change(ModelState.LOADING)
                self._change(ModelState.READY)
                self._requests.start_engine()
            case protocol.Unload(reason) if self._lifecycle.state is ModelState.READY:
                self._requests.suspend()
                self._change(ModelState.UNLOADING, reason=reason)
                self._lifecycle.move(ModelState.IDLE, self._log)
                self._report(protocol.Unloaded())
            case protocol.Trim():
                self._report(protocol.Trimmed(0))
            case protocol.FailRequests(problem):
                self._requests.fail_all(problem)
        return not isinstance(received, protocol.Stop)

    def _change(self, state: ModelState, **why: str) -> None:
        self._lifecycle.move(state, self._log, **why)
        self._report(protocol.StateChanged(state))

    def _prepare(self, preparation: Preparation) -> None:
        """Charge a request to its client, and admit it: its remote checks the rest."""
        if preparation.reply.closed:
            return
        asked = preparation.request.input
        is_read = not isinstance(asked, asks.SpeechInput | asks.TranscriptionInput)
        try:
            self._records.charge(preparation, is_read * _size_of(asked) // CHARACTERS_PER_TOKEN)
        except ProblemError as error:
            self._requests.record_prepared(preparation, error.problem)
        else:
            self._nursery.start_soon(self._make_call, preparation)

    async def _make_call(self, preparation: Preparation) -> None:
        result: _Prepared | Problem
        try:
            result = await trio.to_thread.run_sync(self._prepared, preparation.request)
        except ProblemError as error:
            result = error.problem
        except Exception:  # such as a voice's file that has gone
            self._log.exception("request crashed", request_id=preparation.request.id)
            result = internal_error()
        self._requests.record_prepared(preparation, result)

    def _prepared(self, request: InferenceRequest) -> _Prepared:
        """Return the call of a request with the operator's defaults. It reads files."""
        settings, name, remote = self._names.settings, self.key.model, self._server.remote
        asked, prompt, parameters = request.input, None, None
        if isinstance(asked, ChatInput):
            prompt = asked.operators_prompt(system_prompt_of(name, settings))
        if isinstance(asked, ChatInput) and prompt:
            asked = attrs.evolve(asked, messages=(Message("system", (TextPart(prompt),)), *asked.messages))
        if isinstance(asked, ChatInput | RawInput):
            names = attrs.fields_dict(GenerationDefaults)
            # What not every server takes is sent to others only if it is meant for this model.
            common = names if remote.api == "greenroom" else _COMMON
            own, applied = settings.of_model(name), settings.applied_to(name)
            found = {each: getattr(applied if each in common else own, each) for each in names}
            request = attrs.evolve(request, input=asked, defaults={**given(found), **request.defaults})
            parameters = GenerationParameters(**parameters_of(request))
        return _Prepared(call_of(request, self._there, remote), request.choices, prompt, parameters)

    def _take(self, command: Command) -> None:
        match command:
            case Submit(request, _Prepared(call)):
                self._scopes[request.id] = scope = trio.CancelScope()
                self._nursery.start_soon(self._generate, request, call, scope)
            case Cancel(request_id):
                self._scopes[request_id].cancel("the request has ended")

    async def _generate(self, request: InferenceRequest, call: Call, scope: trio.CancelScope) -> None:
        server, started, begun = self._server, time.monotonic(), 0.0
        # Of its cost only the remote could tell.
        explanation = Explanation() if self._records.explains and request.chosen else None

        def take(event: InferenceEvent) -> None:
            nonlocal begun
            now = time.monotonic()
            begun = begun or now
            if isinstance(event, Finished):
                server.breaker.succeed(request)
                timing = Timing(0.0, begun - started, now - begun)
                event = attrs.evolve(event, timing=timing, explanation=explanation)
            self._requests.deliver([(request.id, event)])

        trace = {} if request.trace is None else request.trace.fields
        if (problem := server.refusal(request)) is None:
            server.running += 1
            try:
                with scope:
                    await self._client.ask(call, {"x-client-request-id": request.id, **trace}, take)
            except CallFailure as failure:
                server.failures += 1
                server.record_failure(request, failure)
                if failure.detail:
                    self._log.warning("remote away", reason=failure.detail)
                problem = failure.problem
            except Exception:
                self._log.exception("request crashed", request_id=request.id)
                problem = internal_error()
            finally:
                server.running -= 1
                server.breaker.leave(request)
        if self._scopes[request.id] is scope:  # else it has ended, and a later request has its id
            del self._scopes[request.id]
            # What has ended already is known to have.
            cancelled = [Finished("cancelled", Usage(), index=index) for index in range(request.choices)]
            ends = cancelled if problem is None else [Failed(problem)]
            self._requests.deliver((request.id, end) for end in ends)


def call_of(request: InferenceRequest, there: str, remote: Remote) -> Call:
    """Return the call of a request for a model that has this name there. Raises ProblemError (400): the
    remote's protocol cannot express it.
    """
    if remote.api in ("anthropic", "responses") and not isinstance(request.input, ChatInput):
        raise unsupported("Anything but a chat", remote.api)
    return _CALLS[type(request.input)](request, request.input, there, remote)


def _size_of(value: Any) -> int:
    """Return the number of characters in a request: a token id counts as one token, images not at all."""
    match value:
        case str():
            return len(value)
        case int() | float() | bytes() | None:
            return CHARACTERS_PER_TOKEN * (type(value) is int)
        case tuple((int(), *_)):  # as many as a million ids
            return CHARACTERS_PER_TOKEN * len(value)
        case tuple() | list():
            return sum(map(_size_of, value))
        case Mapping():
            return sum(map(_size_of, (*value, *value.values())))
    return sum(map(_size_of, attrs.astuple(value, recurse=False))) if attrs.has(type(value)) else 0
