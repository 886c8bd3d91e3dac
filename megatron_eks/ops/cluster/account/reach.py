"""Whether an API server answers from here, and why not."""

import base64
import socket
import ssl
from urllib.parse import urlsplit

_SECONDS = 5


def why_not(endpoint: str, certificate: str) -> str | None:
    """Return why a server does not answer from here; None if it does, with its own certificate.

    `certificate` is the authority's, as EKS tells it: PEM in base64.
    """
    address = urlsplit(endpoint)
    host, port = address.hostname or "", address.port or 443
    try:
        tls = ssl.create_default_context(cadata=base64.b64decode(certificate).decode("ascii"))
    except (ValueError, ssl.SSLError):
        # EKS alone says whose certificates are right; without that a connection has to do.
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=_SECONDS) as plain,
            tls.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except socket.gaierror:
        return f"the name {host} is not known here"
    except TimeoutError:
        return f"no answer within {_SECONDS} s"
    except ssl.SSLCertVerificationError as error:
        return f"somebody else answers, perhaps a proxy: {error.verify_message}"
    except OSError as error:
        return error.strerror or str(error)
