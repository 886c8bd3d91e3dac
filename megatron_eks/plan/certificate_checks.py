"""Whether `network.ca_bundle` holds certificates, and any that still count."""

import base64
import binascii
import ssl
from collections.abc import Iterator
from datetime import UTC, date, datetime

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.plan.egress import certificates

_PATH: Path = ("network", "ca_bundle")

# User data holds 16 KB (EC2 User Guide), and EKS adds its part.
_LONGEST_BUNDLE = 10_000

# X.690, section 8.9: what a certificate begins with.
_SEQUENCE = b"\x30"


def check_bundle(text: str, today: date) -> Iterator[Finding]:
    """Yield what nodes could not use: no certificates, too many, or such as have ended."""
    if "PRIVATE KEY" in text:
        found, remedy = "a private key", "replace that key: this file is read by many"
        yield Finding(Code.CA_BUNDLE, _PATH, found, remedy)
        return
    bodies = [_der(body) for body in certificates(text)]
    if not bodies or any(body[:1] != _SEQUENCE for body in bodies):
        found = "not certificates in PEM"
        remedy = "paste them under `ca_bundle: |`, each from BEGIN to END CERTIFICATE"
        yield Finding(Code.CA_BUNDLE, _PATH, found, remedy)
        return
    if len(text) > _LONGEST_BUNDLE:
        found = f"{len(text)} characters do not fit into the nodes' user data"
        remedy = f"use at most {_LONGEST_BUNDLE}: the roots that nodes need"
        yield Finding(Code.CA_BUNDLE, _PATH, found, remedy)
    ends = [_end(body) for body in bodies]
    over = [(index, end) for index, end in enumerate(ends, start=1) if end and end < today]
    for index, end in over:
        which = "the certificate" if len(ends) == 1 else f"certificate {index} of {len(ends)}"
        found = f"{which} ended on {end}: who presents what it signed is trusted no more"
        # Others of the bundle may have taken its place already.
        level = Level.ERROR if len(over) == len(ends) else Level.WARNING
        yield Finding(Code.CA_BUNDLE, _PATH, found, "paste the one that took its place", level)


def _der(body: str) -> bytes:
    """Return the bytes of what stands between the marks; none where it is no base64."""
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _end(certificate: bytes) -> date | None:
    """Return the last day of a root; None for what OpenSSL cannot read or does not hold for one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificate)
    except ssl.SSLError:
        return None
    ends = [str(each["notAfter"]) for each in context.get_ca_certs()]
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends[0]), UTC).date() if ends else None
