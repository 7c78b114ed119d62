"""The key pair that signs requests to a SAML provider."""

from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from django.utils import timezone

BITS = 3072
# The provider trusts the certificate itself: an end date would only break log-ins on that day.
DAYS = 3650


def key_pair_new(name: str) -> tuple[str, str]:
    """A self-signed certificate and its private key, both as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"rpm-{name}")])
    now = timezone.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
