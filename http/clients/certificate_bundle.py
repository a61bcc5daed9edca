"""Certificates that a client needs to trust this user's own server under TLS."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from greenroom.http.clients.launch import Launch

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
    """Return True if no authority has signed a server's certificate, the first one of its file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds no certificate.
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
    """Shake hands with a server as clients do.

    Raises:
        OSError: It cannot be reached, or is not trusted (`ssl.SSLCertVerificationError`).
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
    """Return the certificates of a PEM file, without the key that it may hold."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return [f"{begin}{part.partition(end)[0]}{end}\n" for part in text.split(begin)[1:]]
