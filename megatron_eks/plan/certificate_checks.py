"""Whether `network.ca_bundle` holds certificates, and any that still count."""

import base64
import binascii
from datetime import date, datetime
from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.plan.egress import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.errors import Path

_PATH: "Path" = ("network", "ca_bundle")

# User data holds 16 KB (EC2 User Guide), and EKS adds its part.
_LONGEST_BUNDLE = 10_000

# X.690, section 8: the tags that RFC 5280, section 4.1, puts into a certificate.
_VERSION, _SEQUENCE = 0xA0, 0x30
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_LONG_LENGTH = 0x80
_VALIDITY = 3
"""Behind the serial number, the algorithm and the issuer."""


def check_bundle(text: str, today: date) -> "Iterator[Finding]":
    """Yield what nodes could not use: no certificates, too many, or such as have ended."""
    if "PRIVATE KEY" in text:
        found, remedy = "a private key", "replace that key: this file is read by many"
        yield Finding(Code.CA_BUNDLE, _PATH, found, remedy)
        return
    bodies = [_der(body) for body in certificates(text)]
    if not bodies or any(body[:1] != bytes([_SEQUENCE]) for body in bodies):
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
    """Return the last day of a certificate; None where it cannot be read."""
    try:
        signed = _parts(_parts(certificate)[0][1])[0][1]
        fields = [(tag, content) for tag, content in _parts(signed) if tag != _VERSION]
        tag, content = _parts(fields[_VALIDITY][1])[1]
        return datetime.strptime(content.decode(), _TIMES[tag]).date()  # noqa: DTZ007 -- Z stands in the form
    except (IndexError, KeyError, ValueError):
        return None


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Split DER into its values: the tag and the content of each."""
    parts = []
    while data:
        length, start = data[1], 2
        if length & _LONG_LENGTH:
            start += length & ~_LONG_LENGTH
            length = int.from_bytes(data[2:start])
        parts.append((data[0], data[start : start + length]))
        data = data[start + length :]
    return parts
