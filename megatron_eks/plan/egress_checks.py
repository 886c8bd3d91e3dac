"""Whether nodes and jobs get out: NAT, endpoints, proxies, certificates, mirrored images."""

import re
from collections.abc import Iterator
from datetime import date

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.plan.certificate_checks import check_bundle
from megatron_eks.plan.egress import REQUIRED_ENDPOINTS, proxy_port
from megatron_eks.plan.network import makes_vpc

# Session Manager User Guide, "Use AWS PrivateLink to set up a VPC endpoint for Session Manager".
_BASTION_ENDPOINTS = ("ssm", "ssmmessages")

# What Go, curl and Python read alike: no address with a scheme, and no pattern.
_NO_PROXY = re.compile(r"\.?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?(/[0-9]{1,2}|:[0-9]{1,5})?")

_LARGEST_PORT = 65535

# Registries of the internet; one of a company may be reached through its own network.
_PUBLIC = re.compile(
    r"((registry-1\.)?docker\.io|ghcr\.io|nvcr\.io|quay\.io|gcr\.io|[a-z0-9-]+-docker\.pkg\.dev"
    r"|public\.ecr\.aws|registry\.k8s\.io|registry\.gitlab\.com|mcr\.microsoft\.com"
    r"|[a-z0-9]+\.azurecr\.io)(/.*)?"
)

_HOST = re.compile(r"[^/]*[.:]|localhost(/|$)")

_OF_ITSELF = re.compile(r"//(localhost|127\.[0-9.]+|0\.0\.0\.0)(:|/|$)")


def check_egress(config: ClusterConfig, today: date) -> Iterator[Finding]:
    """Yield what keeps nodes from their images, and proxies and certificates that are none."""
    yield from _without_nat(config)
    if config.network.proxy is not None:
        for key in ("http", "https"):
            yield from _proxy(("network", "proxy", key), getattr(config.network.proxy, key))
        for index, host in enumerate(config.network.proxy.no_proxy):
            if host.endswith("/0"):
                found = f"{host} is every address: nothing would go through the proxy"
                place: Path = ("network", "proxy", "no_proxy", index)
                yield Finding(Code.PROXY, place, found, "name the ranges that need none")
            if not _NO_PROXY.fullmatch(host):
                found = f"{host!r} is no host, domain or range"
                remedy = "use one entry for each: intern.example.com, .example.com, 10.0.0.0/8"
                yield Finding(Code.PROXY, ("network", "proxy", "no_proxy", index), found, remedy)
    if config.network.ca_bundle is not None:
        yield from check_bundle(config.network.ca_bundle, today)


def _without_nat(config: ClusterConfig) -> Iterator[Finding]:
    network, mirror = config.network, config.images.mirror
    elsewhere = mirror and ".dkr.ecr." in mirror and f".dkr.ecr.{config.region}." not in mirror
    if mirror and not _HOST.match(mirror):
        # distribution/reference, "Grammar": of a host there is a dot or a port in it.
        found = f"{mirror} names no host, so docker takes it for a name on Docker Hub"
        remedy = "write the registry before it: ACCOUNT.dkr.ecr.REGION.amazonaws.com/mirror"
        yield Finding(Code.BAD_FORMAT, ("images", "mirror"), found, remedy)
    nat = network.nat_gateways != 0 or config.existing_cluster is not None
    if elsewhere and (nat or network.proxy is not None):
        found = f"{mirror} is not in {config.region}: every pull crosses regions, and is billed"
        remedy = f"copy the images to ECR in {config.region}"
        yield warning(Code.ANOTHER_REGION, ("images", "mirror"), found, remedy)
    if nat:
        return
    if makes_vpc(config):
        required: tuple[str, ...] = REQUIRED_ENDPOINTS
        if config.access.private_route == "ssm_bastion":
            required += _BASTION_ENDPOINTS
        missing = [name for name in required if name not in network.interface_endpoints]
        if missing:
            found = f"no NAT gateway, and no endpoint for {', '.join(missing)}"
            remedy = "add them to network.interface_endpoints, or use a NAT gateway"
            yield Finding(Code.NO_WAY_OUT, ("network", "nat_gateways"), found, remedy)
    if network.proxy is not None:
        return
    if elsewhere or (mirror is not None and _PUBLIC.fullmatch(mirror)):
        found = f"no NAT gateway, and the endpoints of {config.region} do not lead to {mirror}"
        remedy = f"copy the images to ECR in {config.region}"
        yield Finding(Code.NO_WAY_OUT, ("images", "mirror"), found, remedy)
    if mirror is None:
        found = "no NAT gateway, and images of nvcr.io, ghcr.io and public.ecr.aws are needed"
        remedy = "copy them and set images.mirror, set network.proxy, or use a NAT gateway"
        yield Finding(Code.NO_WAY_OUT, ("network", "nat_gateways"), found, remedy)


def _proxy(path: Path, url: str) -> Iterator[Finding]:
    try:
        usable = 0 < proxy_port(url) <= _LARGEST_PORT
    except ValueError:
        usable = False
    if _OF_ITSELF.search(url):
        found = f"{url} is the node or pod itself, and no proxy runs there"
        yield Finding(Code.PROXY, path, found, "name a host that nodes reach")
    if not usable:
        yield Finding(Code.PROXY, path, f"{url} has no usable port", "use http://HOST:PORT")
