"""The way from a kubeconfig to the configured cluster, and to no other; what its errors mean."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import kubeconfig
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.kubernetes.kubeconfig import Context, KubeconfigError
from megatron_eks.localcloud.aws.values import ACCOUNT as LOCAL_ACCOUNT
from megatron_eks.localcloud.kubernetes.kubeconfigs import KUBECONFIG_NAME
from megatron_eks.ops.failure import FAILED, NOT_REACHABLE, USAGE, Failure
from megatron_eks.plan.cluster.cluster import ClusterPlan

TIMEOUT_SECONDS = 30

# By its full path: whoever calls kubectl may not have activated the environment.
TOKEN_COMMAND = [sys.executable, "-m", "megatron_eks", "token"]
"""What our kubeconfigs name, before its arguments."""

ERRORS = (ApiError, UnreachableError, KubeconfigError)
"""What any request may raise; `explained` says what it means."""

# A kind whose definition is not there, or a namespace.
_LACKS_PLATFORM = re.compile(r"the server has no kind|namespaces \S+ not found")
_WRITE_ONE = "write one for it: meks kubeconfig"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


# The port of every kubelet, which the API server asks for logs and commands.
_OF_A_KUBELET = ":10250/"


@dataclass(frozen=True)
class Access:
    """A client of the cluster that the cluster file describes."""

    client: Client
    is_local: bool
    """Whether it is the one of `meks local up`, where processes stand in for images."""


def open_access(
    plan: ClusterPlan,
    file: Path | None,
    wanted: str | None,
    environment: Mapping[str, str],
    home: Path,
) -> Access:
    """Choose a context and check whose it is; raise Failure if it is another cluster's.

    `file` and `wanted` are what the user named: a kubeconfig, and a context in it.
    """
    paths = kubeconfig.files(file, environment, home)
    config = kubeconfig.load(paths)
    known = kubeconfig.contexts(config)
    name = wanted or config.get("current-context", "")
    if name not in known:
        files = ", ".join(map(str, paths))
        found = f"no context {name!r} in {files}" if name else f"no current context in {files}"
        raise Failure(Code.KUBECONFIG, found, _way(known, plan), exit_code=USAGE)
    context = known[name]
    # By the name or the account of local clusters: a tunnel to EKS starts on loopback, too.
    name = context.cluster_name
    is_named = name == KUBECONFIG_NAME or f":{LOCAL_ACCOUNT}:" in name
    is_local = is_named and urlsplit(context.server).hostname in _LOOPBACK
    if context.cluster_name != KUBECONFIG_NAME or not is_local:
        _refuse_others(context, plan, known, named=wanted is not None)
    client = context.client(TIMEOUT_SECONDS)
    return Access(client, is_local)


def explained(error: Exception) -> Failure:
    """Say what an error of a request means."""
    if isinstance(error, KubeconfigError):
        return Failure(Code.KUBECONFIG, str(error), error.remedy, exit_code=USAGE)
    if isinstance(error, UnreachableError):
        return _not_reachable(error)
    if not isinstance(error, ApiError):
        raise error
    remedy = "correct it and run the command again: what is done stays done"
    if error.status == HTTPStatus.UNAUTHORIZED:
        found = "the API server does not accept the credentials"
        remedy = "check whose they are (`aws sts get-caller-identity`) and this machine's clock, "
        remedy += f"or {_WRITE_ONE}"
        return Failure(Code.KUBERNETES_REFUSED, found, remedy)
    if error.status == HTTPStatus.NOT_FOUND and _LACKS_PLATFORM.search(str(error)):
        return Failure(Code.PLATFORM_MISSING, str(error), "install the platform: meks apply")
    if error.status == HTTPStatus.CONFLICT:
        remedy = "somebody else changes it too: run the command again, which compares anew"
    if error.status == HTTPStatus.FORBIDDEN and "forbidden: User" in str(error):
        remedy = "use a role that `access.admin_role_arns` names, or ask for this right"
    message = str(error) or f"HTTP status {error.status}"
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR and _OF_A_KUBELET in message:
        message = f"the node's kubelet does not answer the API server: {message}"
        remedy = "see whether its node is there and Ready: meks nodes; then run it again"
        if f"/{_OF_A_KUBELET}" in message:  # a node without an address
            remedy = "it is simulated and runs nothing: meks local down, and up with --nodes 1"
    return Failure(Code.KUBERNETES_REFUSED, message, remedy, exit_code=FAILED)


def _not_reachable(error: UnreachableError) -> Failure:
    if any(f"//{each}:" in str(error) for each in _LOOPBACK):
        remedy = "check network and tunnel, or whether the local cluster runs: meks local status"
    else:
        remedy = "check network, VPN and `access.public_cidrs`, and that the cluster is running"
    return Failure(Code.KUBERNETES_NOT_REACHABLE, str(error), remedy, exit_code=NOT_REACHABLE)


def _refuse_others(
    context: Context, plan: ClusterPlan, known: Mapping[str, Context], *, named: bool
) -> None:
    """Refuse a context that leads elsewhere; one that does not say where is taken if named."""
    cluster = context.eks_cluster
    if _is_of(context, plan) or (cluster is None and named):
        return
    # EKS writes the region into the address.
    where = " in ".join(part for part in cluster or () if part) or "a cluster it does not name"
    found = f"context {context.name} leads to {where}, and the cluster file says"
    found += f" {plan.eks_name} in {plan.region}"
    remedy = _way(known, plan)
    if cluster is None and remedy == _WRITE_ONE:
        remedy += f"; or, if it is the right one, add --context {context.name}"
    raise Failure(Code.OTHER_KUBERNETES, found, remedy, exit_code=USAGE)


def _is_of(context: Context, plan: ClusterPlan) -> bool:
    cluster = context.eks_cluster
    return cluster is not None and cluster[0] == plan.eks_name and cluster[1] in {plan.region, ""}


def _way(known: Mapping[str, Context], plan: ClusterPlan) -> str:
    """Return what leads to the configured cluster: another context, if there is one."""
    other = next((each.name for each in known.values() if _is_of(each, plan)), None)
    return f"add --context {other}" if other else _WRITE_ONE
