"""`meks token`: what the API server of an EKS cluster gets to see instead of a secret."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import boto3
from botocore.client import BaseClient

from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE

# The presigned request itself may be used within a minute; the API server takes a token for
# fifteen (kubernetes-sigs/aws-iam-authenticator, README, "API Authorization from Outside a
# Cluster"). A minute earlier a client asks for the next one.
_URL_SECONDS = 60
_TOKEN_LIFE = timedelta(minutes=14)
_PREFIX = "k8s-aws-v1."
_HEADER = "x-k8s-aws-id"


def run(cluster: str, role_arn: str | None, aws: Aws, console: Console) -> int:
    """Print an ExecCredential, as `users[].user.exec` of a kubeconfig asks for it."""
    console.write(credential(cluster, role_arn, aws, console.clock.now()) + "\n")
    return DONE


def credential(cluster: str, role_arn: str | None, aws: Aws, now: datetime) -> str:
    """Return an ExecCredential for one cluster, after taking a role where one is named."""
    expires = now + _TOKEN_LIFE
    sts = aws.client("sts")
    if role_arn:
        found = sts.assume_role(RoleArn=role_arn, RoleSessionName="meks")["Credentials"]
        session = boto3.Session(
            found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], aws.region
        )
        sts = Aws(session, aws.region).client("sts")
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "expirationTimestamp": f"{expires:%Y-%m-%dT%H:%M:%SZ}",
            "token": token(sts, cluster),
        },
    }
    return json.dumps(answer)


def token(sts: BaseClient, cluster: str) -> str:
    """Sign a request that tells who asks, for one cluster: only it takes the token."""

    def remember(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
        context[_HEADER] = params.pop("ClusterName")

    def add(request: Any, **_: object) -> None:  # noqa: ANN401 -- botocore has no types
        request.headers[_HEADER] = request.context[_HEADER]

    events = sts.meta.events
    events.register("provide-client-params.sts.GetCallerIdentity", remember)
    events.register("before-sign.sts.GetCallerIdentity", add)
    params: Mapping[str, str] = {"ClusterName": cluster}
    url = sts.generate_presigned_url(
        "get_caller_identity", Params=params, ExpiresIn=_URL_SECONDS, HttpMethod="GET"
    )
    return _PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
