"""The certificate by which the API server proves itself to the kubelets of a local cluster."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

_LIFE = timedelta(days=3650)


def write_client(certificate: Path, key: Path) -> None:
    """Write a certificate that signs itself, and its key for the owner alone."""
    # Here: they take as long to import as all the rest of a command.
    from cryptography import x509  # noqa: PLC0415 -- slow, seldom used
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 -- slow, seldom used
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 -- slow, seldom used
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415 -- slow, seldom used

    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver-kubelet-client")])
    now = datetime.now(tz=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(own, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    text = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    number = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as stream:
        stream.write(text)
