"""Certificates of this user's server that launched clients trust."""

from __future__ import annotations

import datetime
import os
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from greenroom.http.clients.server_facts import is_self_signed, make_bundle
from greenroom.tests.support.servers.server_processes import GREENROOM, run_greenroom, serving

ASKS = """#!{python}
import os, ssl, sys, urllib.request
assert os.environ["SSL_CERT_FILE"] == os.environ["NODE_EXTRA_CA_CERTS"]
import json
address = json.load(open(os.environ["LLM_USER_PATH"] + "/extra-openai-models.yaml"))[0]["api_base"]
print(address, urllib.request.urlopen(address.replace("/v1", "/health")).status)
"""


def write_signed(folder: Path, *names: str, with_authority: bool) -> Path:
    """Write a certificate that an authority of its own has signed, and its key, into one file."""
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    blobs = [issued.private_key_pem, *issued.cert_chain_pems]
    blobs += [authority.cert_pem] if with_authority else []
    path = folder / "signed.pem"
    path.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return path


def write_self_signed(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    path = folder / "own.pem"
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + made.public_bytes(encoding))
    return path


def test_a_bundle_has_the_public_authorities_and_the_servers_chain_but_never_its_key(tmp_path: Path) -> None:
    signed = write_signed(tmp_path, "localhost", with_authority=True)
    bundle = make_bundle(signed)
    assert "PRIVATE KEY" not in bundle
    assert bundle.count("BEGIN CERTIFICATE") > 50
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle)
    assert any("trustme" in str(each["subject"]) for each in context.get_ca_certs())
    assert not is_self_signed(signed)
    assert is_self_signed(write_self_signed(tmp_path))


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CODEX_CA_CERTIFICATE"])
def test_a_bundle_keeps_the_authorities_that_the_user_has_named(
    tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, named = trustme.CA(), tmp_path / "own authority.pem"
    authority.cert_pem.write_to_path(str(named))
    certificate = write_self_signed(tmp_path)
    monkeypatch.setenv(variable, str(named))
    assert authority.cert_pem.bytes().decode() in make_bundle(certificate)
    for useless in (tmp_path, tmp_path / "missing", certificate.with_suffix(".bin")):
        certificate.with_suffix(".bin").write_bytes(b"\xff\xfe")
        monkeypatch.setenv(variable, str(useless))
        ssl.create_default_context(cadata=make_bundle(certificate))


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `greenroom launch` with a client that asks the server by Python's own means."""
    program = tmp_path / "bin" / "llm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(ASKS.format(python=GREENROOM[0]))
    program.chmod(0o755)
    for name in ("codex", "cn"):
        (program.parent / name).write_bytes(program.read_bytes())
        (program.parent / name).chmod(0o755)
    return run_greenroom(
        "launch",
        *arguments,
        PATH=f"{program.parent}:{os.environ['PATH']}",
        XDG_DATA_HOME=str(tmp_path / "data"),
    )


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["signed", "self-signed"])
def test_a_client_trusts_the_server_by_the_name_that_its_certificate_has(tmp_path: Path, kind: str) -> None:
    if kind == "signed":
        certificate = write_signed(tmp_path, "localhost", with_authority=True)
    else:
        certificate = write_self_signed(tmp_path)
    with serving("--tls-certificate", str(certificate), "--db", ":memory:") as server:
        done = run(tmp_path, "llm")
        port = server.address.rpartition(":")[2]
        assert (done.returncode, done.stdout) == (0, f"https://localhost:{port}/v1 200\n"), done.stderr
        printed = run(tmp_path, "--print", "llm")
        assert "certificates.pem" in printed.stdout
        assert "BEGIN CERTIFICATE" not in printed.stdout
        for name in ("codex", "cn"):
            told = run(tmp_path, "--print", name)
            if kind == "signed":
                assert (told.returncode, f"https://localhost:{port}/v1" in told.stdout + told.stderr) == (
                    0,
                    True,
                )
            else:
                assert (told.returncode, "takes no self-signed certificate" in told.stderr) == (1, True)


@pytest.mark.parametrize("names", [("localhost",), ("studio.example",)], ids=["unknown", "other name"])
def test_a_certificate_that_no_client_would_trust_is_told_in_one_line(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    certificate = write_signed(tmp_path, *names, with_authority=names == ("studio.example",))
    with serving("--tls-certificate", str(certificate), "--db", ":memory:"):
        done = run(tmp_path, "llm")
        assert done.returncode == 1
        assert f"llm would not trust the certificate '{certificate}': " in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert ("mismatch" if names != ("localhost",) else "unable to get") in done.stderr
