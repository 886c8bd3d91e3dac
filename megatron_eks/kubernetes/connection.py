"""One user's way to one API server: TLS, tokens that expire, servers that are busy or gone."""

import contextlib
import http.client
import json
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

FIRST_ERROR = 400

_TIMEOUT_SECONDS = 60
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_BUSY_TRIES = 5
_LONGEST_PAUSE_SECONDS = 5
_MOST_IDLE = 32
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL.
_DATED = frozenset({9, 10})
_LONGEST_MESSAGE_BYTES = 64 * 1024


class UnreachableError(ConnectionError):
    """No answer came from the API server; the message says which server and why."""


class ApiError(Exception):
    """The API server refused a request; the message is the server's own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def refusal(status: int, body: bytes) -> ApiError:
    """Read an answer that refuses a request: the API server's object, or a kubelet's words."""
    text = body.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return ApiError(status, "", text)
    return ApiError(status, answer.get("reason", ""), answer.get("message", ""))


class Credentials:
    """Who asks: a token that stays the same, or nobody where a certificate says it."""

    def __init__(self, token: str = "") -> None:
        self._token = token

    def token(self) -> str:
        """Return the token to send."""
        return self._token

    def renew(self) -> bool:
        """Get another token after the server refused this one; say whether there is one."""
        return False


class Connection:
    """Requests to a server, on connections that its threads take in turn."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext,
        credentials: Credentials,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT_SECONDS,
        server_name: str | None = None,
    ) -> None:
        address = urlsplit(server)
        self._host, self._port = address.hostname or "", address.port or 443
        self.server = server
        self._prefix = address.path.rstrip("/")
        self._tls, self._credentials, self._timeout = tls, credentials, timeout
        self._server_name = server_name
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._idle: deque[http.client.HTTPSConnection] = deque()
        self._date: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the time by the server's clock; by this machine's until the server has answered.

        The times in objects are the server's, and clocks of laptops differ by minutes.
        """
        if self._date is None:
            return datetime.now(tz=UTC)
        date, seen = self._date
        return date + timedelta(seconds=time.monotonic() - seen)

    def close(self) -> None:
        """Close the connections that nobody waits on; the next requests open others."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Send a request and return status and body; a busy server is asked again.

        A token that has expired since the last request is renewed once.
        """
        renewed = False
        for tries in range(1, _BUSY_TRIES + 1):
            status, pause, body = self._send(method, target, data, headers)
            if status == HTTPStatus.UNAUTHORIZED and not renewed and self._credentials.renew():
                renewed = True
                continue
            # Without that header a 503 is the answer, for example that of a health check.
            if status not in _BUSY or pause is None or tries == _BUSY_TRIES:
                break
            time.sleep(min(pause, _LONGEST_PAUSE_SECONDS))
        return status, body

    def stream(self, target: str, timeout: float, longest_line: int = -1) -> Iterator[bytes]:
        """Yield the lines of an answer as they come, on a connection of their own.

        A line longer than `longest_line` bytes comes in pieces. A cut connection raises
        UnreachableError, or ends the lines.
        """
        connection = self._new(timeout)
        try:
            response = self._open_stream(connection, target)
            while line := response.readline(longest_line):
                yield line
        except (http.client.HTTPException, OSError) as error:
            raise self.unreachable(error) from error
        finally:
            connection.close()

    def dial(self) -> ssl.SSLSocket:
        """Return a socket of its own to the server, after the TLS handshake."""
        connection = self._new(self._timeout)
        try:
            connection.connect()
        except OSError as error:
            raise self.unreachable(error) from error
        return connection.sock

    def asked(self, target: str) -> tuple[str, dict[str, str]]:
        """Return the address without its scheme, and the headers, to ask for in other protocols."""
        return urlsplit(self.server).netloc + self._prefix + target, self._all_headers({})

    def renew(self) -> bool:
        """Get another token after the server refused this one; say whether there is one."""
        return self._credentials.renew()

    def _open_stream(
        self, connection: http.client.HTTPSConnection, target: str
    ) -> http.client.HTTPResponse:
        for renewed in (False, True):
            connection.request("GET", self._prefix + target, headers=self._all_headers({}))
            response = connection.getresponse()
            if response.status != HTTPStatus.UNAUTHORIZED or renewed:
                break
            response.read()
            if not self._credentials.renew():
                break
        if response.status >= FIRST_ERROR:
            raise refusal(response.status, response.read(_LONGEST_MESSAGE_BYTES))
        return response

    def _send(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, float | None, bytes]:
        """Return status, the seconds after which the server wants to be asked again, and body."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._new(self._timeout)
        is_new = connection.sock is None
        try:
            connection.request(method, self._prefix + target, data, self._all_headers(headers))
            response = connection.getresponse()
            pause = response.getheader("Retry-After", "")
            self._note(response.getheader("Date", ""))
            body = response.read()
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            # The server closes connections that were idle; a new one says whether it is gone.
            if is_new or isinstance(error, TimeoutError):
                raise self.unreachable(error) from error
            self.close()
            return self._send(method, target, data, headers)
        except BaseException:
            # Ctrl-C half way: the next request must not find the rest of this answer.
            connection.close()
            raise
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        return response.status, float(pause) if pause.isdecimal() else None, body

    def _note(self, date: str) -> None:
        with contextlib.suppress(ValueError):
            said = parsedate_to_datetime(date)
            self._date = (said if said.tzinfo else said.replace(tzinfo=UTC), time.monotonic())

    def _all_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        token = self._credentials.token()
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        return {**self._headers, **authorization, **headers}

    def _new(self, timeout: float) -> http.client.HTTPSConnection:
        name = self._server_name or self._host
        return _NamedConnection(self._host, self._port, self._tls, timeout, name)

    def unreachable(self, error: Exception) -> UnreachableError:
        """Return the error that says why this server gave no answer."""
        if isinstance(error, TimeoutError):
            why = f"no answer within {self._timeout:g} s"
        elif isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _DATED:
            why = f"its {error.verify_message}: see to this machine's clock first"
        elif isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is not the one of the kubeconfig ({error.verify_message})"
        else:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return UnreachableError(f"{self.server}: {why}")


class _NamedConnection(http.client.HTTPSConnection):
    """Knows the server by its own name, which differs from the address behind a tunnel."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext, timeout: float, name: str
    ) -> None:
        super().__init__(host, port, context=tls, timeout=timeout)
        self._tls, self._name = tls, name

    def connect(self) -> None:
        """Open the connection and check the certificate against that name."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
