"""The certificate under which a server listens."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger(actor="http")


class Certificates:
    """The certificate of new connections, which can change while the server runs.

    Args:
        settings: Settings with the paths of its files.

    Raises:
        OSError: A file cannot be read, or its content does not fit (`ssl.SSLError`).
        ValueError: The key needs a password.
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
