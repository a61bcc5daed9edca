"""A client's socket under TLS, with the same direct writes and time limits as a plain one."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import trio

from greenroom.http.transport.socket_stream import SEND_TIMEOUT, SocketStream
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

HANDSHAKE_SECONDS = 5.0  # Seconds in which a client has to complete its handshake
_READ_BYTES = 64 * 1024

T = TypeVar("T")


class TlsStream(SocketStream):
    """A connected TCP socket under TLS.

    Data is encrypted at once, in the order of the calls; encrypted bytes that the socket does not accept yet
    wait.

    Args:
        stream: Accepted stream; this object takes ownership of its socket.
    """

    scheme = "https"

    def __init__(
        self, stream: trio.SocketStream, context: ssl.SSLContext, send_timeout: float = SEND_TIMEOUT
    ) -> None:
        super().__init__(stream, send_timeout)
        self._received, self._sending = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sending, server_side=True)

    async def open(self) -> bool:
        """Complete the handshake; return False if the client does not, hangs up, or takes too long."""
        gone = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
        with trio.move_on_after(HANDSHAKE_SECONDS), contextlib.suppress(*gone):
            await self._retry(self._tls.do_handshake)
            return True
        return False

    def send_now(self, data: bytes) -> bytes | memoryview:
        """Encrypt bytes, and send as much of that as the socket accepts without waiting.

        Returns:
            The unsent rest, encrypted, for `send_all`.

        Raises:
            trio.BrokenResourceError: The client has disconnected.
            trio.ClosedResourceError: This side has closed the socket.
        """
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError from error
        return super().send_now(self._sending.read())

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return the next bytes; empty at end of file, even if the client did not announce it."""
        try:
            return await self._retry(lambda: self._tls.read(max_bytes or _READ_BYTES))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def send_eof(self) -> None:
        """Announce the end, and close the sending direction, without waiting."""
        with contextlib.suppress(ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
            super().send_now(self._sending.read())
        super().send_eof()

    async def _retry(self, step: Callable[[], T]) -> T:
        """Return the result of a step of TLS once the client has sent enough for it. Raises
        trio.BrokenResourceError: the client does not speak TLS, or is gone.
        """
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._send_own()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                raise
            except ssl.SSLError as error:
                with contextlib.suppress(trio.BrokenResourceError):
                    await self._send_own()  # the alert that tells the client why
                raise trio.BrokenResourceError from error
            else:
                await self._send_own()
                return result
            received = await super().receive_some(_READ_BYTES)
            if received:
                self._received.write(received)
            else:
                self._received.write_eof()

    async def _send_own(self) -> None:
        """Send the messages of TLS itself, such as its part of the handshake."""
        if self._sending.pending and (rest := super().send_now(self._sending.read())):
            await self.send_all(rest)


log = get_logger(actor="http")


class Certificates:
    """The certificate of new connections, which can change while the server runs. Raises OSError: A file
    cannot be read, or its content does not fit (`ssl.SSLError`). Raises ValueError: the key needs a password.
    """

    def __init__(self, settings: Settings) -> None:
        self._context = server_context(settings)

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context of new connections; None if they are not encrypted."""
        return self._context

    def update(self, settings: Settings) -> None:
        """Read the files again; a server with an unusable new certificate keeps the old one."""
        if self._context is None:
            return
        try:
            self._context = server_context(settings)
        except (OSError, ValueError) as error:
            log.error("certificate not reloaded", reason=str(error))


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context with the certificate of the settings; None if they name none.

    Raises:
        OSError: A file cannot be read, or its content does not fit (`ssl.SSLError`).
        ValueError: The key needs a password, or a key is named without a certificate.
    """
    if settings.tls_certificate is None:
        if settings.tls_key is not None:
            raise ValueError("tls_key: needs tls_certificate")
        return None
    certificate = Path(settings.tls_certificate).expanduser()
    key = certificate if settings.tls_key is None else Path(settings.tls_key).expanduser()
    for path in (certificate, key):
        if path.exists() and not path.is_file():
            raise OSError(f"{path}: is no file")
        path.open("rb").close()  # OpenSSL does not tell which file is missing
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key, password=_refuse_password)
    _warn_of_expiry(certificate)
    return context


def _warn_of_expiry(certificate: Path) -> None:
    from cryptography.x509 import load_pem_x509_certificates

    expired = load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc
    if expired <= datetime.now(UTC):
        log.warning("certificate expired", path=str(certificate), expired=expired.isoformat())


def _refuse_password() -> str:
    raise ValueError("tls_key: a key with a password cannot be used, since nobody is there to type it")
