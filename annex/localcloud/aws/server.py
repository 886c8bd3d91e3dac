"""Starts and stops the local AWS, and says how clients reach it."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.localcloud.aws.keys import Keys
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value
from megatron_eks.localcloud.kubernetes.processes import Processes, listens

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
    keys: Keys
    account: str = ACCOUNT

    def environment(self, region: str) -> dict[str, str]:
        """Return the variables with which a client finds nothing but this AWS."""
        return {
            **_place(self.endpoint_url, region),
            **self.keys.administrator.variables(),
            "CDK_DEFAULT_ACCOUNT": self.account,
            "CDK_DEFAULT_REGION": region,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def pods_environment(self, host: str, region: str) -> dict[str, str]:
        """Return the variables of pods, by the address under which they know this machine."""
        url = f"http://{host}:{self.port}"
        return {**_place(url, region), **self.keys.pods.variables()}

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.endpoint_url.rpartition(":")[2])

    @property
    def token_reviewer(self) -> str:
        """The address that says whose a Kubernetes token is; nobody can guess it."""
        return f"{self.endpoint_url}{TOKENS_PATH}/{self.keys.reviewer}"

    def client(self, service: str, region: str) -> Value:
        """Return a boto3 client of a service."""
        # Here: every command of `meks` imports this module, and few have use for boto3.
        import boto3  # noqa: PLC0415 -- slow, seldom used

        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.keys.administrator.access_key_id,
            aws_secret_access_key=self.keys.administrator.secret_access_key,
        )

    def nodes(self) -> list[Object]:
        """Return the running nodes of all node groups; see `services.api_server.instances`."""
        found: list[Object] = json.loads(self.tell(NODES_PATH, {}))
        return found

    def tell(self, path: str, content: Object) -> bytes:
        """Send something to an address beside AWS's own, and return the answer."""
        secret = self.keys.administrator.secret_access_key
        request = urllib.request.Request(  # noqa: S310 -- our own address
            f"{self.endpoint_url}{path}",
            data=json.dumps(content).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {secret}"},
        )
        with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as answer:  # noqa: S310 -- our own address
            return bytes(answer.read())


def _place(url: str, region: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        # Somebody's own files and machine have no say: neither profile nor role.
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def new(port: int) -> LocalAws:
    """Return what a local AWS at a port will be, with keys of its own; `start` it."""
    return LocalAws(f"http://127.0.0.1:{port}", Keys.new())


def start(
    processes: Processes, python: str, local: LocalAws, file: Path, kubeconfig: Path | None = None
) -> None:
    """Start a server among other processes, and write its keys to a file; `wait` for it.

    With the kubeconfig of an API server, which may be written later, that server is behind the EKS
    clusters.
    """
    local.keys.write(file)
    more = [kubeconfig] if kubeconfig else []
    processes.start(NAME, python, "-m", "megatron_eks.localcloud.aws", str(local.port), file, *more)


def wait(processes: Processes, port: int) -> None:
    """Return when the server answers. Raises ProcessError if it does not."""
    processes.wait(NAME, lambda: listens(port), _START_SECONDS)


def merged(environment: Mapping[str, str], local: LocalAws, region: str) -> dict[str, str]:
    """Return an environment with the variables of a local AWS and none of another."""
    kept = {key: value for key, value in environment.items() if not key.startswith("AWS_")}
    return {**kept, **local.environment(region)}
