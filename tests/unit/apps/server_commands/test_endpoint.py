"""The address where a server listens, and the address that clients use."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.server_commands.endpoint import Wanted, listen

CERTIFICATE = Path("chain.pem")


@pytest.mark.parametrize(
    ("wanted", "address"),
    [
        (Wanted(), "http://127.0.0.1:80"),
        (Wanted("0.0.0.0", is_proxied=True, names=("a.example",)), "https://a.example"),
        (Wanted(is_proxied=True), "http://127.0.0.1:80"),
    ],
)
def test_safe_endpoint_is_accepted_and_has_an_address(wanted: Wanted, address: str) -> None:
    wanted.check()
    assert wanted.address(80) == address


@pytest.mark.parametrize(
    "wanted", [Wanted("0.0.0.0"), Wanted("example.com"), Wanted(certificate=CERTIFICATE)]
)
def test_unsafe_endpoint_is_refused(wanted: Wanted) -> None:
    with pytest.raises(UsageMistake):
        wanted.check()


def test_error_for_an_unusable_certificate_contains_the_file(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("chain.pem", "key.pem")]
    wanted = Wanted("::1", certificate=files[0], key=files[1])
    assert wanted.address(80) == "https://127.0.0.1:80"
    for text in (None, "no certificate"):
        if text is not None:
            files[0].write_text(text)
        with pytest.raises(UsageMistake, match=r"cannot use --tls-certificate .*chain\.pem"):
            wanted.check()
    for file, content in zip(files, self_signed(), strict=True):
        file.write_bytes(content)
    wanted.check()


def self_signed() -> tuple[bytes, bytes]:
    """Return a certificate for localhost and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=9_999))
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(encoding, form, serialization.NoEncryption())
    return certificate.public_bytes(encoding), private


async def test_port_in_use_is_refused() -> None:
    async with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UsageMistake, match=f"cannot listen on 127.0.0.1:{port}"):
            async with listen("127.0.0.1", port):
                pass
