"""TLS with trustme's certificates: real clients, hang-ups, silent handshakes, and a renewed certificate."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx
import ollama
import openai
import pytest
import trio
import trustme
from structlog.testing import capture_logs

from greenroom.http.transport import tls as tls_stream
from greenroom.http.transport.tls import server_context
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.web_socket_clients import KEY, PATH, RawSocket
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.connection_app import make_app, wait_until_closed
from greenroom.tests.support.servers.http_servers import RawClient, Served, fetch, running
from greenroom.tests.support.servers.http_servers import connected as connected_plainly
from greenroom.tests.support.servers.http_servers import serving as serving_here
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

MESSAGES: Any = [{"role": "user", "content": "Hello"}]
NAMES = ("localhost", "127.0.0.1", "::1")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def write_certificate(
    authority: trustme.CA, folder: Path, not_after: datetime | None = None
) -> tuple[str, str]:
    """Write a new certificate and its key, and return their paths."""
    issued = authority.issue_cert(*NAMES, not_after=not_after)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(str(key))
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return str(certificate), str(key)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """Return a client's context that trusts the authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def served(tiny_model: TinyModel, authority: trustme.CA, tmp_path: Path) -> AsyncIterator[Served]:
    certificate, key = write_certificate(authority, tmp_path)
    settings = Settings(
        models=(str(tiny_model("qwen3")),),
        tls_certificate=certificate,
        tls_key=key,
        db=":memory:",
        shutdown_timeout=60.0,
    )
    async with serving_here(settings) as served:
        assert served.server.address.startswith("https://")
        yield served


def ask_with_every_sdk(address: str, context: ssl.SSLContext) -> list[str]:
    """Ask for a streamed answer by the official SDKs, and return the texts."""
    with openai.OpenAI(
        base_url=f"{address}/v1", api_key="none", http_client=openai.DefaultHttpxClient(verify=context)
    ) as client:
        chat = client.chat.completions.create(
            model="qwen3", messages=MESSAGES, max_tokens=8, temperature=0, stream=True
        )
        texts = ["".join(piece.choices[0].delta.content or "" for piece in chat if piece.choices)]
        response = client.responses.create(
            model="qwen3", input="Hello", max_output_tokens=16, temperature=0, stream=True
        )
        texts.append("".join(event.delta for event in response if event.type == "response.output_text.delta"))
    with (
        anthropic.Anthropic(
            base_url=address, api_key="none", http_client=anthropic.DefaultHttpxClient(verify=context)
        ) as claude,
        claude.messages.stream(
            model="qwen3", messages=MESSAGES, max_tokens=8, extra_body={"temperature": 0}
        ) as stream,
    ):
        texts.append("".join(stream.text_stream))
    with ollama.Client(host=address, verify=context) as llama:
        options = {"num_predict": 8, "temperature": 0}
        pieces = llama.chat("qwen3", MESSAGES, stream=True, options=options)
        texts.append("".join(piece.message.content or "" for piece in pieces))
    return texts


async def test_the_official_clients_read_streams_over_https(served: Served, authority: trustme.CA) -> None:
    found = await trio.to_thread.run_sync(ask_with_every_sdk, served.server.address, trusting(authority))
    assert all(found), found
    assert found[0] == found[3]


async def connected(served: Served, context: ssl.SSLContext) -> tuple[RawClient, trio.SSLStream[Any]]:
    stream = await trio.open_tcp_stream("127.0.0.1", served.server.port)
    tls = trio.SSLStream(stream, context, server_hostname="localhost")
    await tls.do_handshake()
    return RawClient(cast("trio.SocketStream", tls)), tls


async def test_a_hang_up_under_tls_ends_the_request(served: Served, authority: trustme.CA) -> None:
    client, tls = await connected(served, trusting(authority))
    body = b'{"model": "qwen3", "messages": [{"role": "user", "content": "Hi"}], "stream": true,'
    body += b' "max_tokens": 100000, "ignore_eos": true}'
    await client.request("POST", "/v1/chat/completions", body)
    await client.read_until(b"chat.completion.chunk")
    await tls.transport_stream.aclose()
    with trio.fail_after(300):
        while (await status(served, trusting(authority)))["requests"]:
            await trio.lowlevel.checkpoint()


async def test_an_own_page_opens_a_socket_under_tls(served: Served, authority: trustme.CA) -> None:
    host = f"localhost:{served.server.port}"
    for origin, answered in ((f"https://{host}", b"101"), (f"http://{host}", b"403")):
        client, _ = await connected(served, trusting(authority))
        await client.request(
            "GET",
            PATH,
            host=host,
            origin=origin,
            upgrade="websocket",
            connection="upgrade",
            sec_websocket_version="13",
            sec_websocket_key=KEY,
        )
        assert answered in await client.read_until(b"\r\n")
        if answered == b"101":
            await client.read_until(b"\r\n\r\n")
            socket = RawSocket(client)
            events = await socket.answer(
                {"type": "response.create", "model": "qwen3", "input": "Hi", "max_output_tokens": 2}
            )
            assert events[-1]["type"] in ("response.completed", "response.incomplete"), events
        await client.stream.aclose()


async def status(served: Served, context: ssl.SSLContext) -> Any:
    async with httpx.AsyncClient(verify=context, timeout=60) as client:
        return (await client.get(f"{served.server.address}/admin/requests")).json()


async def test_a_large_body_and_a_large_answer_pass_whole(served: Served, authority: trustme.CA) -> None:
    async with httpx.AsyncClient(verify=trusting(authority), timeout=120) as client:
        text = "word " * 100_000
        path = f"{served.server.address}/v1/conversations"
        items = [{"role": "user", "content": text}]
        made = await client.post(path, json={"items": items})
        assert made.status_code == 200, made.text
        listed = await client.get(f"{path}/{made.json()['id']}/items")
        assert listed.json()["data"][0]["content"][0]["text"] == text


async def test_a_client_that_does_not_shake_hands_is_closed(
    served: Served, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tls_stream.HANDSHAKE_SECONDS == 5.0
    with monkeypatch.context() as hurried:
        hurried.setattr(tls_stream, "HANDSHAKE_SECONDS", 0.2)
        for said in (b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            async with await trio.open_tcp_stream("127.0.0.1", served.server.port) as stream:
                if said:
                    await stream.send_all(said)
                with trio.fail_after(300):
                    try:
                        while await stream.receive_some():
                            pass
                    except trio.BrokenResourceError:
                        pass
    await status(served, trusting(authority))
    await wait_until_closed(served.server)


async def test_a_drain_waits_for_no_handshake(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKE_SECONDS", 600.0)
    certificate, key = write_certificate(authority, tmp_path)
    settings = Settings(tls_certificate=certificate, tls_key=key, shutdown_timeout=600.0)
    async with running(make_app(), settings) as server, connected_plainly(server):
        while not server.loop.connections:
            await trio.lowlevel.checkpoint()
        server.drain.set()
        await server.stopped.wait()


@pytest.mark.deep
def test_a_hang_up_amid_the_handshake_is_no_crash(authority: trustme.CA, tmp_path: Path) -> None:
    certificate, key = write_certificate(authority, tmp_path)
    hello = ssl.MemoryBIO()
    begun = trusting(authority).wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    whole = hello.read()
    with serving("--tls-certificate", certificate, "--tls-key", key) as server:
        port = int(server.address.rpartition(":")[2])
        for said in (b"", whole[:5], whole):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
                plain.sendall(said)
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(65536):
                    pass
        server.process.terminate()
        server.end()
        assert [line for line in server.log if line["level"] == "error"] == []


@pytest.mark.soak
def test_a_renewed_certificate_is_read_at_a_hang_up_and_a_broken_one_changes_nothing(
    authority: trustme.CA, tmp_path: Path
) -> None:
    certificate, key = write_certificate(authority, tmp_path)

    def presented() -> bytes | None:
        port = int(server.address.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
            trusting(authority).wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            assert tls.version() in ("TLSv1.2", "TLSv1.3")
            return tls.getpeercert(binary_form=True)

    with serving("--tls-certificate", certificate, "--tls-key", key) as server:
        first = presented()
        write_certificate(authority, tmp_path)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: presented() != first)
        second = presented()
        Path(key).write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("settings not reloaded")
        assert presented() == second


@pytest.mark.soak
def test_commands_join_a_server_under_a_certificate_that_nobody_knows(
    authority: trustme.CA, tmp_path: Path
) -> None:
    certificate, key = write_certificate(authority, tmp_path)
    with serving("--tls-certificate", certificate, "--tls-key", key, "--db", str(tmp_path / "db")) as server:
        assert run_greenroom("keys", "add", "boss", "--db", str(tmp_path / "db")).returncode == 0
        done = run_greenroom("chat", "--max-tokens", "4", stdin="Hello\n")
        assert done.returncode == 0, done.stderr
        assert server.wait_for("request finished")["model"] == "greenroom-demo"


@pytest.mark.parametrize("broken", ["missing", "no PEM", "other key", "folder", "no certificate"])
def test_an_unusable_certificate_ends_the_start_with_status_2(
    authority: trustme.CA, tmp_path: Path, broken: str
) -> None:
    certificate, key = write_certificate(authority, tmp_path)
    options = ["--tls-certificate", certificate, "--tls-key", key]
    match broken:
        case "missing":
            options[3] = str(tmp_path / "none")
        case "no PEM":
            Path(certificate).write_text("hello")
        case "other key":
            authority.issue_cert("other").private_key_pem.write_to_path(key)
        case "folder":
            options[1] = str(tmp_path)
        case "no certificate":
            options = options[2:]
    refused = run_greenroom("serve", "--port", "0", *options)
    assert refused.returncode == 2, refused.stderr
    assert "tls_" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_a_plain_server_is_not_asked_for_a_handshake(server_without_model: Served) -> None:
    assert (await fetch(server_without_model.server, "GET", "/health")).status == 200


def test_an_expired_certificate_is_told_of(authority: trustme.CA, tmp_path: Path) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    for not_after, told in ((ended, ["certificate expired"]), (None, [])):
        certificate, key = write_certificate(authority, tmp_path, not_after)
        with capture_logs() as logs:
            server_context(Settings(tls_certificate=certificate, tls_key=key))
        assert [line["event"] for line in logs] == told
