"""`meks kubeconfig` and `meks token`: the way to the configured EKS cluster, and what opens it."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.client import BaseClient

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import kubeconfig
from megatron_eks.kubernetes.kubeconfig import Entry, KubeconfigError
from megatron_eks.ops.aws.session import Aws, if_there
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, NOT_FOUND, Failure
from megatron_eks.ops.kube.access import TOKEN_COMMAND, explained
from megatron_eks.ops.output import replace_file

_USABLE = frozenset({"ACTIVE", "UPDATING"})
_NO_ROLE = "none"
_EXEC_VERSION = "client.authentication.k8s.io/v1"
_KEPT = ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL")


def run(file: Path, role_arn: str | None, tools: Tools, environ: Mapping[str, str]) -> int:
    """Write the cluster's entries into a kubeconfig and make them current; others stay."""
    cluster = _described(tools)
    arn = str(cluster["arn"])
    if role_arn is None:
        role_arn = _role(tools)
    entries = _entries(cluster, role_arn if role_arn != _NO_ROLE else None, tools, environ)
    try:
        config = kubeconfig.read(file)
    except KubeconfigError as error:
        raise explained(error) from error
    for section, entry in entries.items():
        others = [each for each in config.get(section) or () if each["name"] != arn]
        config[section] = [*others, {"name": arn, **entry}]
    config |= {"apiVersion": "v1", "kind": "Config", "current-context": arn}
    text = yaml.safe_dump(config, sort_keys=False)
    # Readable by its owner alone, as entries of others may need.
    replace_file(file.resolve(), text, "or name another with --kubeconfig", mode=0o600)
    who = "as you are" if role_arn in {None, _NO_ROLE} else f"as {role_arn}"
    tools.console.say(f"wrote context {arn} to {file}, {who}; next: meks status")
    if not cluster.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True):
        tools.console.say("note: its address answers inside the VPC only")
    return DONE


def _described(tools: Tools) -> Entry:
    name, eks = tools.plan.eks_name, tools.aws.client("eks")
    answer = if_there(eks.describe_cluster, "ResourceNotFoundException", name=name)
    if answer is None:
        found = f"there is no EKS cluster {name} in {tools.plan.region}"
        raise Failure(Code.NOT_DEPLOYED, found, "run: meks deploy", exit_code=NOT_FOUND)
    cluster: Entry = answer["cluster"]
    if cluster["status"] not in _USABLE or not cluster.get("endpoint"):
        found = f"the EKS cluster {name} is {cluster['status']}"
        raise Failure(Code.NOT_DEPLOYED, found, "wait until it is ACTIVE", exit_code=FAILED)
    return cluster


def _role(tools: Tools) -> str | None:
    """Choose an administrator's role, unless the caller is one: deploying gives no access."""
    roles = tools.plan.access.admin_role_arns
    caller = str(tools.aws.client("sts").get_caller_identity()["Arn"])
    return roles[0] if roles and not _is_one_of(caller, roles) else None


def _is_one_of(caller: str, roles: Sequence[str]) -> bool:
    if caller in roles:
        return True
    # arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION, without the role's path.
    account, _, resource = caller.partition(":sts::")[2].partition(":")
    match resource.split("/"):
        case ["assumed-role", name, *_]:
            return any(f"::{account}:role/" in role and role.endswith(f"/{name}") for role in roles)
    return False


def _entries(
    cluster: Entry, role_arn: str | None, tools: Tools, environ: Mapping[str, str]
) -> dict[str, Entry]:
    arn = cluster["arn"]
    place = ["--cluster-name", cluster["name"], "--region", tools.plan.region]
    # What AWS is asked with later is what it is asked with now; no variable holds a secret.
    kept = [name for name in _KEPT if environ.get(name)]
    role = ["--role-arn", role_arn] if role_arn else []
    plugin: Entry = {
        "apiVersion": _EXEC_VERSION,
        "command": TOKEN_COMMAND[0],
        "args": [*TOKEN_COMMAND[1:], *place, *role],
        "env": [{"name": name, "value": environ[name]} for name in kept] or None,
        "interactiveMode": "Never",
    }
    address = {
        "server": cluster["endpoint"],
        "certificate-authority-data": cluster["certificateAuthority"]["data"],
    }
    return {
        "clusters": {"cluster": address},
        "users": {"user": {"exec": plugin}},
        "contexts": {"context": {"cluster": arn, "user": arn}},
    }


# The presigned request itself may be used within a minute; the API server takes a token for
# fifteen (kubernetes-sigs/aws-iam-authenticator, README, "API Authorization from Outside a
# Cluster"). A minute earlier a client asks for the next one.
_URL_SECONDS = 60
_TOKEN_LIFE = timedelta(minutes=14)
_PREFIX = "k8s-aws-v1."
_HEADER = "x-k8s-aws-id"


def print_token(cluster: str, role_arn: str | None, aws: Aws, console: Console) -> int:
    """Print an ExecCredential for one cluster, after taking a role where one is named.

    `users[].user.exec` of a kubeconfig asks for it.
    """
    expires = console.clock.now() + _TOKEN_LIFE
    sts = aws.client("sts")
    if role_arn:
        found = sts.assume_role(RoleArn=role_arn, RoleSessionName="meks")["Credentials"]
        session = boto3.Session(
            found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], aws.region
        )
        sts = Aws(session, aws.region).client("sts")
    answer = {
        "apiVersion": _EXEC_VERSION,
        "kind": "ExecCredential",
        "status": {
            "expirationTimestamp": f"{expires:%Y-%m-%dT%H:%M:%SZ}",
            "token": token(sts, cluster),
        },
    }
    console.write(json.dumps(answer) + "\n")
    return DONE


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
