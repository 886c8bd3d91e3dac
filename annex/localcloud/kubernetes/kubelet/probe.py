"""One probe of a container, made from inside of its namespaces. A process.

`python -m ...probe SANDBOX PROGRAM` reads a probe of the Kubernetes API as JSON from stdin, its
port a number and its host an address, and ends with 0 if it succeeds.
"""

import http.client
import json
import socket
import ssl
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.kubelet import linux


def main(sandbox: int, program: int) -> int:
    """Make the probe and return its exit code."""
    probe: Object = json.load(sys.stdin)
    seconds = probe.get("timeoutSeconds", 1)
    try:
        if "exec" in probe:
            return _execute(probe["exec"]["command"], sandbox, program, seconds)
        linux.enter(sandbox, "user", "net")
        if "httpGet" in probe:
            return _ask(probe["httpGet"], seconds)
        to = probe["tcpSocket"]
        socket.create_connection((to["host"], to["port"]), timeout=seconds).close()
    except (OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _execute(command: list[str], sandbox: int, program: int, seconds: int) -> int:
    words = Path(f"/proc/{program}/environ").read_text(errors="surrogateescape").split("\0")
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    linux.enter(sandbox, "user")
    linux.enter(program, "net", "ipc", "uts", "pid", "mnt")
    done = subprocess.run(  # noqa: S603 -- the pod's own command
        command, env=environment, cwd="/", timeout=seconds, check=False
    )
    return done.returncode


def _ask(request: Object, seconds: int) -> int:
    host, port = request["host"], request["port"]
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    if request.get("scheme") == "HTTPS":
        # A kubelet does not check the certificate of what it probes.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 -- see above
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    headers = {each["name"]: each["value"] for each in request.get("httpHeaders", ())}
    connection.request("GET", request.get("path", "/"), headers=headers)
    status = connection.getresponse().status
    if HTTPStatus.OK <= status < HTTPStatus.BAD_REQUEST:
        return 0
    sys.stderr.write(f"HTTP probe failed with statuscode: {status}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
