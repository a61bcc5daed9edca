"""Facts of a server that a client's settings are made of."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from greenroom.http.process.runtime_file import RunningServer, running_servers

NO_KEY = "none"  # Key for clients that insist on one while the server needs none


@attrs.frozen
class ServerFacts:
    """A server and the model that a client uses there.

    Args:
        url: Base URL without `/v1`.
        context: Context length of the model in tokens; None if unknown.
        takes_tools: True if the model calls tools.
        thinks: True if it reasons before it answers.
        sees: True if it takes images.
    """

    url: str
    model: str
    key: str = attrs.field(default=NO_KEY, repr=False)
    context: int | None = None
    takes_tools: bool = True
    thinks: bool = False
    sees: bool = False

    @property
    def base(self) -> str:
        """Base URL for clients of OpenAI's API."""
        return f"{self.url}/v1"

    @property
    def tokens(self) -> int:
        """The context length, or a small one if it is unknown."""
        return self.context or 8_192

    @property
    def longest_answer(self) -> int:
        """Tokens of an answer that leave three quarters of the context to the conversation."""
        return max(256, self.tokens // 4)

    def advice_for(self, title: str, needed: int) -> str | None:
        """Return a sentence on a model whose context is too short for a client; None if it is known to do."""
        if self.context is None or self.context >= needed:
            return None
        return (
            f"{self.model} has a context of {self.context:,} tokens, and {title} needs about {needed:,}: "
            "name another model with --model"
        )


def facts_of(url: str, key: str, listed: Mapping[str, Any]) -> ServerFacts:
    """Return the facts in a model's description, as `GET /v1/models/{id}` answers it."""
    inputs, context = listed.get("capabilities", {}).get("inputs", ()), listed.get("context_length")
    return ServerFacts(
        url,
        str(listed["id"]),
        key,
        context if isinstance(context, int) else None,
        takes_tools=listed.get("tools") is not False,
        thinks=bool(listed.get("thinking")),
        sees="image" in inputs,
    )


FILE = "certificates.pem"
_SECONDS = 5.0
_ADDS = ("NODE_EXTRA_CA_CERTS",)
_REPLACES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CODEX_CA_CERTIFICATE")
"""Variables that name all that is trusted; so the bundle has the public authorities, too."""


def make_bundle(certificate: Path) -> str:
    """Return the public authorities, those that this machine and its user trust, and a server's own chain.

    All are PEM.

    Raises:
        OSError: The server's file cannot be read.
    """
    import certifi

    machine = ssl.create_default_context()  # it reads the user's SSL_CERT_FILE, too
    own = (ssl.DER_cert_to_PEM_cert(each) for each in machine.get_ca_certs(binary_form=True))
    public, chain = map(_certificates_in, (certifi.contents(), certificate.read_text()))
    return "\n".join(dict.fromkeys((*public, *own, *_named_by_user(), *chain)))


def is_self_signed(certificate: Path) -> bool:
    """Return True if no authority has signed a server's certificate, the first one of its file. Raises
    OSError: the file cannot be read. Raises ValueError: it holds no certificate.
    """
    from cryptography.x509 import load_pem_x509_certificates

    first = load_pem_x509_certificates(certificate.read_bytes())[0]
    return first.issuer == first.subject


def trusted_address(url: str, bundle: str) -> str:
    """Return the address of a server by which clients that trust a bundle reach it.

    That may be `localhost` in place of the numbers, since certificates often have only the name.

    Raises:
        ssl.SSLCertVerificationError: They would refuse it by both.
        OSError: The server cannot be reached.
    """
    parts = urlsplit(url)
    named = parts._replace(netloc=f"localhost:{parts.port}").geturl()
    try:
        _verify(url, bundle)
    except ssl.SSLCertVerificationError as refusal:
        try:
            _verify(named, bundle)
        except ssl.SSLCertVerificationError:
            raise refusal from None
        return named
    return url


def with_bundle(started: Launch, folder: Path, bundle: str) -> Launch:
    """Return a start whose client trusts a bundle, which becomes a file in its own folder."""
    variables = dict.fromkeys((*_ADDS, *_REPLACES), str(folder / FILE))
    return Launch(
        started.command,
        {**started.environment, **variables},
        {**started.files, FILE: bundle},
        started.removed,
    )


def _named_by_user() -> Iterator[str]:
    """Yield the certificates that the user's own variables name, since the bundle takes their place."""
    for path in filter(None, map(os.environ.get, (*_ADDS, *_REPLACES))):
        with contextlib.suppress(OSError, ValueError):  # a folder, or nothing that clients could read
            yield from _certificates_in(Path(path).read_text())


def _verify(url: str, bundle: str) -> None:
    """Shake hands with a server as clients do. Raises OSError: it cannot be reached, or is not trusted
    (`ssl.SSLCertVerificationError`).
    """
    context = ssl.create_default_context(cadata=bundle)
    # Newer Pythons take a server's own certificate for an authority, and others for none; node does neither.
    lenient = getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0) | ssl.VERIFY_X509_STRICT
    context.verify_flags &= ~lenient
    parts = urlsplit(url)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname),
    ):
        pass


def _certificates_in(text: str) -> list[str]:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return [f"{begin}{part.partition(end)[0]}{end}\n" for part in text.split(begin)[1:]]


_LOOK = 0.1  # Seconds between checks whether the server is ready
_END_SECONDS = 40.0


@contextmanager
def own_server(model: str | None, log: Path) -> Iterator[RunningServer]:
    """Run a server on a free port within the block.

    Args:
        model: Folder or hub id; None for the models of the settings.

    Raises:
        RuntimeError: It ended before it listened; the message is the end of its log.
        OSError: It cannot be started.
    """
    command = [sys.executable, "-m", "greenroom.http.command_line", "serve", "--port", "0"]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A signal amid the start would leave a server whose process id nobody knows yet.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        with log.open("wb") as file:
            # In a session of its own: the interrupts of the terminal are the client's.
            process = subprocess.Popen(
                [*command, *([model] if model else [])],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, mask),
            )
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield _wait_for(process, log)
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> RunningServer:
    while process.poll() is None:
        for server in running_servers():
            if server.pid == process.pid and server.urls:
                return server
        time.sleep(_LOOK)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise RuntimeError(lines[-1] if lines else f"the server ended with status {process.returncode}")


_PRIVATE = 0o600


@attrs.frozen
class Launch:
    """The start of a client.

    Args:
        environment: Variables that it gets besides those of the user.
        files: Contents by path below the client's own folder; rewritten at each start.
        removed: Variables of the user's that it must not get, since they would lead it elsewhere.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    files: Mapping[str, str] = attrs.field(factory=dict)
    removed: Sequence[str] = ()

    def write(self, folder: Path) -> None:
        """Write the files into the client's own folder, which nobody else may read: they may hold a key.
        Raises OSError: A file cannot be written.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(unfinished, path)

    def lines(self, folder: Path) -> list[str]:
        """Return the lines to paste into bash, zsh or fish that do the same, and leave their variables alone.
        `folder`: the client's own folder, which may begin with `$HOME`.
        """
        lines = []
        for name, text in self.files.items():
            path = folder / name
            lines += [
                f"mkdir -p -m 700 {_pasted(path.parent)}",
                f"printf '%s\\n' {_pasted(text)} > {_pasted(path)}",
            ]
        words = [f"-u {name}" for name in self.removed]
        words += [_pasted(f"{name}={value}") for name, value in self.environment.items()]
        return [*lines, " \\\n  ".join(["env", *words, " ".join(map(_pasted, self.command))])]

    def variables(self, user: Mapping[str, str]) -> dict[str, str]:
        """Return the client's whole environment, from the user's."""
        kept = {name: value for name, value in user.items() if name not in self.removed}
        return {**kept, **self.environment}


def _pasted(word: str | Path) -> str:
    """Return a word as a shell reads it; one that names the home folder is left for the shell to complete."""
    text = str(word)
    return f'"{text}"' if "$HOME/" in text else shlex.quote(text)
