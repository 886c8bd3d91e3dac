"""How nodes and jobs reach what is outside: proxy variables, certificates, mirrored images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from megatron_eks.config.cluster import ClusterConfig, Proxy
from megatron_eks.plan.network import makes_vpc, service_cidrs, vpc_cidrs

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

Variables = tuple[tuple[str, str], ...]


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

    digests: Variables = ()
    """Images that the catalogue knows by tag alone, and the same with their digests."""

    def image(self, uri: str) -> str:
        """Return where nodes pull an image of another registry from, by digest if it is known."""
        return self.pinned(uri if self.mirror is None else f"{self.mirror}/{uri.partition('/')[2]}")

    def pinned(self, uri: str) -> str:
        """Return an image by its digest if that is known."""
        return dict(self.digests).get(uri, uri)


def plan_egress(config: ClusterConfig) -> Egress:
    """Plan the way out of a configuration that has passed the checks."""
    proxy, bundle = config.network.proxy, config.network.ca_bundle
    variables = _proxy_variables(config, proxy) if proxy else {}
    pods = variables | {name.lower(): value for name, value in variables.items()}
    if bundle is not None:
        pods |= dict.fromkeys(_CA_VARIABLES, f"{CA_DIRECTORY}/{CA_FILE}")
    return Egress(
        node_variables=tuple(sorted(variables.items())),
        pod_variables=tuple(sorted(pods.items())),
        proxy_ports=tuple(sorted({proxy_port(proxy.http), proxy_port(proxy.https)}))
        if proxy
        else (),
        # Nothing between the certificates: comments would stand in a script on the nodes.
        ca_bundle=_pem(certificates(bundle)) if bundle is not None else None,
        mirror=config.images.mirror,
    )


def certificates(text: str) -> list[str]:
    """Return what stands between the marks of each certificate of a PEM text."""
    return [match["body"] for match in _CERTIFICATE.finditer(text)]


def _pem(bodies: list[str]) -> str:
    marks = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----")
    lines = [line for body in bodies for line in (marks[0], *body.split(), marks[1])]
    return "\n".join(lines) + "\n"


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
    """Yield what is reached directly: the cluster, the VPC, and AWS through endpoints."""
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
        yield _ENDPOINT_HOSTS.get(service, service + ".{region}.amazonaws.com").format(
            region=region
        )
