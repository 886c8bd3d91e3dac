"""Starts and stops the local AWS, and says how clients reach it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.local.aws.values import ACCOUNT, CREDENTIALS, Object, Value
from megatron_eks.local.kubernetes.processes import Processes, free_port, listens

NAME = "aws"
_START_SECONDS = 60
_REQUEST_SECONDS = 30


# Beside AWS's own addresses.
FAILURES_PATH = "/local-aws/failures"
TOKENS_PATH = "/local-aws/tokens"
NODES_PATH = "/local-aws/nodes"


@dataclass(frozen=True)
class LocalAws:
    """A running local AWS."""

    endpoint_url: str
    account: str = ACCOUNT

    def environment(self, region: str) -> dict[str, str]:
        """Return the variables with which a client finds nothing but this AWS."""
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            # Somebody's own files and machine have no say: neither profile nor role.
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": self.account,
            "CDK_DEFAULT_REGION": region,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def client(self, service: str, region: str) -> Value:
        """Return a boto3 client of a service."""
        # Here: every command of `meks` imports this module, and few have use for boto3.
        import boto3  # noqa: PLC0415 -- see above

        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.endpoint_url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def nodes(self) -> list[Object]:
        """Return the running nodes of all node groups; see `services.api_server.instances`."""
        url = self.endpoint_url + NODES_PATH
        with urllib.request.urlopen(url, timeout=_REQUEST_SECONDS) as answer:  # noqa: S310 -- our own
            found: list[Object] = json.load(answer)
        return found

    def fail_next(self, resource: str, message: str, action: str = "CREATE") -> None:
        """Let CloudFormation fail once at a resource, given by type or beginning of its name."""
        wanted = {"resource": resource, "message": message, "action": action}
        request = urllib.request.Request(  # noqa: S310 -- our own address
            f"{self.endpoint_url}{FAILURES_PATH}",
            data=json.dumps(wanted).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS):  # noqa: S310 -- as above
            pass


def start(processes: Processes, python: str, port: int, kubeconfig: Path | None = None) -> LocalAws:
    """Start a server among other processes; `wait` for it.

    With the kubeconfig of an API server, which may be written later, that server is behind the EKS
    clusters.
    """
    more = [kubeconfig] if kubeconfig else []
    processes.start(NAME, python, "-m", "megatron_eks.local.aws", str(port), *more)
    return LocalAws(f"http://127.0.0.1:{port}")


def wait(processes: Processes, port: int) -> None:
    """Return when the server answers. Raises ProcessError if it does not."""
    processes.wait(NAME, lambda: listens(port), _START_SECONDS)


@contextmanager
def local_aws(folder: Path, python: str) -> Iterator[LocalAws]:
    """Run a local AWS of one's own; its log lies in the folder."""
    processes = Processes(folder)
    try:
        port = free_port()
        running = start(processes, python, port)
        wait(processes, port)
        yield running
    finally:
        processes.stop()


def merged(environment: Mapping[str, str], local: LocalAws, region: str) -> dict[str, str]:
    """Return an environment with the variables of a local AWS and none of another."""
    kept = {key: value for key, value in environment.items() if not key.startswith("AWS_")}
    return {**kept, **local.environment(region)}
