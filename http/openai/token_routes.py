"""Routes `POST /tokenize`, `/detokenize` and `/apply-template`, as in vLLM and llama.cpp's server."""

from __future__ import annotations

from functools import partial
from typing import Any

from quart import Blueprint, Response

from greenroom.actors.requests.prompt_queries import render_prompt
from greenroom.http.answering.current_request import request_client, request_id
from greenroom.http.answering.http_responses import json_response, large_json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, described
from greenroom.http.answering.request_parameters import NeutralValues, parse_model_key, refuse_unsupported
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.openai.chat_routes import parse_chat_request
from greenroom.http.openai.chunk_stream import UNSUPPORTED_IN_CHAT
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.problems import missing
from greenroom.schemas.protocols.model_protocol import PromptContents
from greenroom.schemas.wire.openai_chat import OPENAI, ChatRequest
from greenroom.schemas.wire.openai_endpoints import DetokenizeRequest, TokenizeRequest
from greenroom.schemas.wire.wire import structure

UNSUPPORTED_IN_TEXT: NeutralValues = {"parse_special": (True,)}


def token_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("tokens", __name__)

    async def inspect(request: InferenceRequest) -> PromptContents:
        return await render_prompt(services.refs.pool, await services.with_files(request))

    @routes.post("/tokenize")
    @described(
        "Show the tokens of a prompt", body=TokenizeRequest, converter=OPENAI, problems=ANSWERED_BY_A_MODEL
    )
    async def tokenize() -> Response:
        parse = partial(_parse_tokenize, request_id=request_id(), client=request_client())
        wire, asked = await services.read_request(TokenizeRequest, OPENAI, {}, parse, files=True)
        contents = await inspect(asked)
        return await large_json_response(lambda: _tokenized(wire, contents), len(contents.tokens))

    @routes.post("/detokenize")
    @described(
        "Show the text of tokens", body=DetokenizeRequest, converter=OPENAI, problems=ANSWERED_BY_A_MODEL
    )
    async def detokenize() -> Response:
        parse = partial(_parse_detokenize, request_id=request_id(), client=request_client())
        _, asked = await services.read_request(DetokenizeRequest, OPENAI, {}, parse)
        text = (await inspect(asked)).text
        return json_response({"prompt": text, "content": text})

    @routes.post("/apply-template")
    @described(
        "Show the prompt that a chat becomes",
        body=TokenizeRequest,
        converter=OPENAI,
        problems=ANSWERED_BY_A_MODEL,
    )
    async def apply_template() -> Response:
        parse = partial(_parse_chat, request_id=request_id(), client=request_client())
        _, asked = await services.read_request(
            TokenizeRequest, OPENAI, UNSUPPORTED_IN_CHAT, parse, files=True
        )
        return json_response({"prompt": (await inspect(asked)).text})

    return routes


def _parse_tokenize(
    wire: TokenizeRequest, body: JsonObject, request_id: str, client: str
) -> InferenceRequest:
    if body.get("messages") is not None:
        refuse_unsupported(body, UNSUPPORTED_IN_CHAT)
        return _parse_chat(wire, body, request_id, client)
    if wire.prompt is not None:
        raw = RawInput(wire.prompt, begins=wire.add_special_tokens is not False)
    elif wire.content is not None:
        raw = RawInput(wire.content, begins=wire.add_special is True, param="content")
    else:
        raise missing("prompt")
    refuse_unsupported(body, UNSUPPORTED_IN_TEXT)
    return InferenceRequest(request_id, parse_model_key(wire.model), raw, client=client)


def _parse_chat(wire: TokenizeRequest, body: JsonObject, request_id: str, client: str) -> InferenceRequest:
    body = {**body, "model": wire.model}
    return parse_chat_request(structure(body, ChatRequest, OPENAI), body, request_id, client)


def _parse_detokenize(
    wire: DetokenizeRequest, _: JsonObject, request_id: str, client: str
) -> InferenceRequest:
    raw = RawInput(wire.tokens, param="tokens")
    return InferenceRequest(request_id, parse_model_key(wire.model), raw, client=client)


def _tokenized(wire: TokenizeRequest, contents: PromptContents) -> dict[str, Any]:
    tokens: list[Any] = list(contents.tokens)
    if wire.with_pieces:
        pairs = zip(contents.tokens, contents.pieces, strict=True)
        tokens = [{"id": ident, "piece": _piece(piece)} for ident, piece in pairs]
    return {
        "count": len(tokens),
        "max_model_len": contents.context,
        "tokens": tokens,
        "token_strs": list(map(_token_str, contents.pieces)) if wire.return_token_strs else None,
    }


def _piece(piece: bytes) -> str | list[int]:
    """Return a token as text, or as bytes if it is an incomplete character, as llama.cpp does."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _token_str(piece: bytes) -> str:
    """Return a token as text, with SentencePiece's notation for the bytes of an incomplete character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in piece)
