"""Reads what is judged; what may not be read is noted, and the rest is read all the same."""

import base64
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from megatron_eks.config.outputs import Outputs
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.ops.cluster.account import deployed
from megatron_eks.ops.cluster.account.capacity_facts import denied, offers, quotas
from megatron_eks.ops.cluster.account.facts import Asking, Caller, EksCluster, Facts
from megatron_eks.ops.cluster.capacity import described
from megatron_eks.ops.cluster.names import taken
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.ops.jobs import job_access
from megatron_eks.plan.cluster.cluster import ClusterPlan

_Found = TypeVar("_Found")

Reach = Callable[[str, str], str | None]
"""From endpoint and certificate of an API server to why it does not answer; None: it does."""


def read(
    aws: Aws,
    plan: ClusterPlan,
    outputs: Outputs,
    *,
    reach: Reach | None,
    own_address: Callable[[], str],
) -> Facts:
    """Read everything; raise what boto3 raises where nothing could be read at all.

    `reach` is None where the cluster is elsewhere than AWS says, as in a rehearsal.
    """
    identity = aws.client("sts").get_caller_identity()
    facts = Facts(Caller(str(identity["Account"]), str(identity["Arn"])))
    ask = Asking(aws, facts.unknown)
    ask.check = "EKS cluster"
    cluster = ask("the EKS cluster", lambda: deployed.cluster(aws, plan.eks_name))
    ask.check = "zones offer the types"
    facts.offered = ask("where instance types are offered", lambda: offers(ask, plan)) or {}
    ask.check = "permissions"
    facts.denied = denied(ask, plan, facts.caller)
    ask.check = "names"
    stacks = Stacks(ask.client("cloudformation"))
    facts.taken = tuple(ask("whose the names are", lambda: taken(plan, stacks)) or ())
    ask.check = "quotas"
    facts.quotas = quotas(ask, plan, made=cluster is not None)
    named = dict.fromkeys(filter(None, (each.capacity.reservation_id for each in plan.pools)))
    check, look = "reservations and Capacity Blocks", partial(described, ec2=ask.client("ec2"))
    facts.reservations = _each(ask, check, "the reservation {}", named, look)
    _network(ask, plan, facts, cluster)
    _deployed(ask, plan, outputs, facts)
    if cluster and reach and cluster.endpoint:
        cluster = replace(cluster, unreachable=reach(cluster.endpoint, cluster.certificate))
    facts.cluster = cluster
    if cluster and cluster.unreachable and cluster.public:
        with suppress(OSError):
            facts.own_address = own_address()
    return facts


def _network(ask: Asking, plan: ClusterPlan, facts: Facts, cluster: EksCluster | None) -> None:
    existing, brought = plan.network.existing, "what the file brings along"
    named = existing.private_subnets.values() if existing else ()
    wanted = dict.fromkeys((*named, *(cluster.subnets if cluster else ())))
    ask.check = "free addresses"
    if wanted:
        look = partial(deployed.subnets, ask, wanted)
        facts.subnets = ask("subnets and their free addresses", look) or {}
    vpcs = [existing.vpc_id] if existing else []
    facts.vpcs = _each(ask, brought, "the VPC", vpcs, partial(deployed.vpc_exists, ask))
    if existing and existing.node_security_group_id:
        find = partial(deployed.groups, ask, group_id=[existing.node_security_group_id])
        facts.groups = ask("the nodes' security group", find) or {}
    used = cluster.vpc if cluster else existing.vpc_id if existing else None
    ask.check = "default security group"
    if used:
        # AWS puts one into every VPC.
        find = partial(deployed.groups, ask, vpc_id=[used], group_name=["default"])
        facts.default_group = next(
            iter((ask("the default security group", find) or {}).values()), None
        )
    keys = filter(None, [plan.storage.kms_key_arn])
    facts.keys = _each(ask, brought, "the KMS key", keys, partial(deployed.key_state, ask))


def _deployed(ask: Asking, plan: ClusterPlan, outputs: Outputs, facts: Facts) -> None:
    ask.check = "Kubernetes version supported"
    until = partial(deployed.support, ask, plan.kubernetes_version)
    found = ask("until when the Kubernetes version is supported", until)
    if found is not None:
        facts.offers_version, facts.support_ends, facts.event_ttl = found
    known = [each.id for each in outputs.file_systems if not each.preview]
    find = partial(deployed.file_system, ask)
    facts.file_systems = _each(ask, "file systems", "the file system {}", known, find)
    uris = [each.uri for each in outputs.images.values() if not each.preview]
    ours = [uri for uri in uris if f".dkr.ecr.{plan.region}." in uri]
    is_there = partial(deployed.has_image, ask.client("ecr"))
    facts.images = _each(ask, "images", "the image {}", ours, is_there)
    ask.check = "S3 for jobs"
    if role := outputs.job_role:
        lacks = partial(job_access.lacking, role, plan.data_access, ask.client("iam"))
        facts.out_of_reach = tuple(ask("what the jobs' role may do", lacks) or ())
    if "Cluster" in plan.stacks:
        addons, pools = (each.name for each in plan.addons), (each.name for each in plan.pools)
        look = partial(deployed.addon, ask.client("eks"), plan.eks_name)
        facts.addons = _each(ask, "add-ons", "the add-on {}", addons, look)
        group = NodeGroups(plan.eks_name, ask.aws).find
        facts.node_groups = _each(ask, "node groups", "the node group {}", pools, group)


def _each(
    ask: Asking, check: str, what: str, names: Iterable[str], find: Callable[[str], _Found]
) -> Mapping[str, _Found]:
    """Look each of some things up; those that nobody may look up are left out."""
    ask.check = check
    found: dict[str, _Found] = {}
    for name in names:

        def look(name: str = name) -> bool:
            found[name] = find(name)
            return True

        ask(what.format(name), look)
    return found


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
