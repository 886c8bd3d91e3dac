"""How nodes and jobs reach what is outside: NAT, endpoints, proxy, certificates, mirror."""

import base64
import binascii
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from urllib.parse import urlsplit

from megatron_eks.config.cluster import ClusterConfig, Proxy
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, Path
from megatron_eks.plan.cluster.network import makes_vpc, service_cidrs, vpc_cidrs

CA_DIRECTORY = "/etc/megatron-eks/ca"
CA_FILE = "ca.pem"

# What nodes and add-ons call: the CNI and nodeadm EC2, containerd ECR, pods Pod Identity (EKS User
# Guide, "Deploy private clusters with limited internet access").
REQUIRED_ENDPOINTS = ("ec2", "ecr.api", "ecr.dkr", "eks-auth")

# OpenSSL and Python's ssl, requests, the AWS SDKs, curl: each reads another one.
_CA_VARIABLES = ("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")

# The node itself, its metadata service, and Pod Identity's agent (EKS User Guide, "Understand how
# EKS Pod Identity works").
_NODE_LOCAL = ("localhost", "127.0.0.1", "169.254.169.254", "169.254.170.23")
_CLUSTER_LOCAL = (".svc", ".cluster.local")

# The part of a host name that differs from the service's name (VPC User Guide, "AWS services that
# integrate with AWS PrivateLink").
_ENDPOINT_HOSTS = {
    "ecr.api": "api.ecr.{region}.amazonaws.com",
    "ecr.dkr": ".dkr.ecr.{region}.amazonaws.com",
    "eks-auth": "eks-auth.{region}.api.aws",
}

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s+(?P<body>[A-Za-z0-9+/=\s]+?)\s+-----END CERTIFICATE-----"
)

_PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"

Variables = tuple[tuple[str, str], ...]

# Session Manager User Guide, "Use AWS PrivateLink to set up a VPC endpoint for Session Manager".
_BASTION_ENDPOINTS = ("ssm", "ssmmessages")
# Of the pod that sizes pools.
_SCALING_ENDPOINTS = ("autoscaling", "eks")

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
_PATH: Path = ("network", "ca_bundle")

# User data holds 16 KB (EC2 User Guide), and EKS adds its part.
_LONGEST_BUNDLE = 10_000

# X.690, section 8.9: what a certificate begins with.
_SEQUENCE = b"\x30"


@dataclass(frozen=True)
class Egress:
    """What nodes and pods are told of proxies and certificates; hashable, as plans of pods are."""

    node_variables: Variables = ()
    pod_variables: Variables = ()
    proxy_ports: tuple[int, ...] = ()
    ca_bundle: str | None = None
    """Certificates in PEM."""
    mirror: str | None = None
    """Registry and path below which copies of other registries' images are."""

    def image(self, uri: str) -> str:
        """Return where nodes pull an image of another registry from."""
        return uri if self.mirror is None else f"{self.mirror}/{uri.partition('/')[2]}"


def plan_egress(config: ClusterConfig) -> Egress:
    """Plan the way out of a configuration that has passed the checks."""
    proxy, bundle = config.network.proxy, config.network.ca_bundle
    variables = _proxy_variables(config, proxy) if proxy else {}
    ports = {proxy_port(proxy.http), proxy_port(proxy.https)} if proxy else set()
    pods = variables | {name.lower(): value for name, value in variables.items()}
    if bundle is not None:
        pods |= dict.fromkeys(_CA_VARIABLES, f"{CA_DIRECTORY}/{CA_FILE}")
    return Egress(
        node_variables=tuple(sorted(variables.items())),
        pod_variables=tuple(sorted(pods.items())),
        proxy_ports=tuple(sorted(ports)),
        # Nothing between the certificates: comments would stand in a script on the nodes.
        ca_bundle="".join(map(_PEM.format, certificates(bundle))) if bundle is not None else None,
        mirror=config.images.mirror,
    )


def certificates(text: str) -> list[str]:
    """Return the lines between the marks of each certificate of a PEM text."""
    return ["\n".join(match["body"].split()) for match in _CERTIFICATE.finditer(text)]


def has_no_way_out(config: ClusterConfig) -> bool:
    """Tell whether pods reach nothing but AWS's own services in the region."""
    return config.network.nat_gateways == 0 and config.network.proxy is None


def proxy_port(url: str) -> int:
    """Return the port of a proxy; raise ValueError when it is none."""
    parts = urlsplit(url)
    return parts.port or {"http": 80, "https": 443}[parts.scheme]


def _proxy_variables(config: ClusterConfig, proxy: Proxy) -> dict[str, str]:
    return {
        "HTTP_PROXY": proxy.http,
        "HTTPS_PROXY": proxy.https,
        "NO_PROXY": ",".join(dict.fromkeys((*_without_proxy(config), *proxy.no_proxy))),
    }


def _without_proxy(config: ClusterConfig) -> Iterator[str]:
    region = config.region
    yield from _NODE_LOCAL
    yield from _CLUSTER_LOCAL
    yield from vpc_cidrs(config)
    yield from service_cidrs(config)
    yield f".{region}.eks.amazonaws.com"
    yield f".{region}.compute.internal"
    if makes_vpc(config):
        # The gateway endpoint, which a VPC of somebody else's may not have.
        yield f"s3.{region}.amazonaws.com"
        yield f".s3.{region}.amazonaws.com"
    for service in config.network.interface_endpoints:
        host = _ENDPOINT_HOSTS.get(service, f"{service}.{{region}}.amazonaws.com")
        yield host.format(region=region)


def check_egress(config: ClusterConfig, today: date) -> Findings:
    """Yield what keeps nodes from their images, and proxies and certificates that are none."""
    yield from _without_nat(config)
    if config.network.proxy is not None:
        for key in ("http", "https"):
            yield from _proxy(("network", "proxy", key), getattr(config.network.proxy, key))
        for index, host in enumerate(config.network.proxy.no_proxy):
            place: Path = ("network", "proxy", "no_proxy", index)
            if host.endswith("/0"):
                found = f"{host} is every address: nothing would go through the proxy"
                yield Finding(Code.PROXY, place, found, "name the ranges that need none")
            if not _NO_PROXY.fullmatch(host):
                remedy = "use one entry for each: intern.example.com, .example.com, 10.0.0.0/8"
                yield Finding(Code.PROXY, place, f"{host!r} is no host, domain or range", remedy)
    if config.network.ca_bundle is not None:
        yield from check_bundle(config.network.ca_bundle, today)


def _without_nat(config: ClusterConfig) -> Findings:
    network, mirror = config.network, config.images.mirror
    elsewhere = mirror and ".dkr.ecr." in mirror and f".dkr.ecr.{config.region}." not in mirror
    if mirror and not _HOST.match(mirror):
        # distribution/reference, "Grammar": of a host there is a dot or a port in it.
        found = f"{mirror} names no host, so docker takes it for a name on Docker Hub"
        remedy = "write the registry before it: ACCOUNT.dkr.ecr.REGION.amazonaws.com/mirror"
        yield Finding(Code.BAD_FORMAT, ("images", "mirror"), found, remedy)
    if network.nat_gateways != 0 or config.existing_cluster is not None:
        return
    if makes_vpc(config):
        missing = [each for each in _needed(config) if each not in network.interface_endpoints]
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


def _needed(config: ClusterConfig) -> Iterator[str]:
    yield from REQUIRED_ENDPOINTS
    if config.access.private_route == "ssm_bastion":
        yield from _BASTION_ENDPOINTS
    if config.network.proxy is None and any(pool.scale == "queue" for pool in config.gpu_pools):
        yield from _SCALING_ENDPOINTS


def _proxy(path: Path, url: str) -> Findings:
    try:
        usable = 0 < proxy_port(url) <= _LARGEST_PORT
    except ValueError:
        usable = False
    if _OF_ITSELF.search(url):
        found = f"{url} is the node or pod itself, and no proxy runs there"
        yield Finding(Code.PROXY, path, found, "name a host that nodes reach")
    if not usable:
        yield Finding(Code.PROXY, path, f"{url} has no usable port", "use http://HOST:PORT")


def check_bundle(text: str, today: date) -> Findings:
    """Yield what nodes could not use: no certificates, too many, or such as have ended."""
    if "PRIVATE KEY" in text:
        found, remedy = "a private key", "replace that key: this file is read by many"
        yield Finding(Code.CA_BUNDLE, _PATH, found, remedy)
        return
    bodies = [_der(body) for body in certificates(text)]
    if not bodies or any(body[:1] != _SEQUENCE for body in bodies):
        remedy = "paste them under `ca_bundle: |`, each from BEGIN to END CERTIFICATE"
        yield Finding(Code.CA_BUNDLE, _PATH, "not certificates in PEM", remedy)
        return
    if len(text) > _LONGEST_BUNDLE:
        found = f"{len(text)} characters do not fit into the nodes' user data"
        remedy = f"use at most {_LONGEST_BUNDLE}: the roots that nodes need"
        yield Finding(Code.CA_BUNDLE, _PATH, found, remedy)
    ends = [_end(body) for body in bodies]
    over = [(index, end) for index, end in enumerate(ends, start=1) if end and end < today]
    for index, end in over:
        which = "the certificate" if len(ends) == 1 else f"certificate {index} of {len(ends)}"
        found = f"{which} ended on {end}: who presents what it signed is trusted no more"
        # Others of the bundle may have taken its place already.
        level = Level.ERROR if len(over) == len(ends) else Level.WARNING
        yield Finding(Code.CA_BUNDLE, _PATH, found, "paste the one that took its place", level)


def _der(body: str) -> bytes:
    """Return the bytes of what stands between the marks; none where it is no base64."""
    try:
        return base64.b64decode(body.replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _end(certificate: bytes) -> date | None:
    """Return the last day of a root; None for what OpenSSL cannot read or does not hold for one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificate)
    except ssl.SSLError:
        return None
    ends = [str(each["notAfter"]) for each in context.get_ca_certs()]
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends[0]), UTC).date() if ends else None
