"""The cluster file: everything a user can say about a cluster."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from megatron_eks.catalog.workloads import Workload
from megatron_eks.config import forms
from megatron_eks.config.forms import Model
from megatron_eks.config.images import Images
from megatron_eks.config.storage import Storage

Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Access(Model):
    """Who administers the cluster, and from where its API endpoint can be reached."""

    admin_role_arns: tuple[forms.RoleArn, ...] = Field(min_length=1)
    """Roles that become cluster administrators; whoever deploys gets no access by that."""
    public_cidrs: tuple[str, ...]
    """Address ranges that reach the endpoint from outside the VPC; empty: private endpoint."""
    private_route: Literal["vpn", "ssm_bastion", "cloudshell"] | None = None
    """With a private endpoint: how people get into the VPC."""
    deletion_protection: bool = True
    """EKS refuses to delete the cluster while this is true."""

    @property
    def bastion(self) -> bool:
        """Whether an instance in the VPC forwards to the private endpoint, through SSM."""
        return self.private_route == "ssm_bastion"


class Proxy(Model):
    """The way out of a network that has no other."""

    http: forms.ProxyUrl
    """For http:// addresses."""
    https: forms.ProxyUrl
    """For https:// addresses."""
    no_proxy: tuple[str, ...] = ()
    """Hosts, domains and ranges besides the VPC, the cluster and AWS's own in this region."""


class Network(Model):
    """The VPC, made or brought along."""

    vpc_cidr: str = "10.0.0.0/16"
    """Addresses of nodes and pods; /16 to /22 where the VPC is made."""
    service_cidr: str = "172.20.0.0/16"
    """Addresses of Kubernetes Services; must not overlap the VPC."""
    nat_gateways: forms.NatGateways = 1
    """One for all zones, or one in each, so that a lost zone takes nothing from the others; 0: no
    way out but endpoints and a proxy."""
    interface_endpoints: tuple[str, ...] = ()
    """Service names such as `ecr.api`; the S3 gateway endpoint is always there."""
    vpc_id: Annotated[str, forms.pattern("vpc_id")] | None = None
    """An existing VPC; its routes, endpoints and addresses are its owner's."""
    private_subnets: dict[str, Annotated[str, forms.pattern("subnet_id")]] = Field(
        default_factory=dict
    )
    """Zone to subnet id, with an existing VPC."""
    node_security_group_id: Annotated[str, forms.pattern("security_group_id")] | None = None
    """The group that the nodes of an existing cluster carry; the file servers admit it."""
    proxy: Proxy | None = None
    """For nodes and jobs."""
    ca_bundle: str | None = None
    """Certificates in PEM; nodes trust them too, jobs trust them and no others."""


class SystemNodes(Model):
    """Nodes for add-ons and operators; they carry no GPU."""

    instance_type: str = "c5.2xlarge"
    """An x86-64 type; `meks validate` lists those that are known."""
    count: int = Field(default=2, ge=1, le=20)
    ami_release: str | None = None
    """EKS AMI release; default: the one pinned in the catalogue."""


class OnDemand(Model):
    """Capacity that EC2 gives when it has some."""

    type: Literal["on_demand"] = "on_demand"


class Reservation(Model):
    """An on-demand capacity reservation, or a resource group of several."""

    type: Literal["reservation"]
    # Nobody calls this class with either name: files are read.
    id: Annotated[str, forms.pattern("reservation_or_group")] = Field(  # type: ignore[pydantic-alias]
        validation_alias=AliasChoices("id", "resource_group")
    )
    """cr-..., or the ARN of a group, whose reservations EC2 fills (`resource_group` too)."""


class CapacityBlock(Model):
    """A Capacity Block for ML, with its fixed end."""

    type: Literal["capacity_block"]
    id: Annotated[str, forms.pattern("reservation")]
    ends_at: datetime
    """With its zone; EC2 ends the nodes 30 minutes before."""


class Spot(Model):
    """Capacity that EC2 may take back with two minutes' notice."""

    type: Literal["spot"]


Capacity = Annotated[OnDemand | Reservation | CapacityBlock | Spot, Field(discriminator="type")]


class GpuPool(Model):
    """Identical GPU nodes in one availability zone."""

    name: forms.DnsLabel = Field(max_length=20)
    instance_type: str
    """An EC2 GPU type, such as p4d.24xlarge."""
    availability_zone: forms.Zone
    """EFA traffic cannot leave a zone, so a pool has one."""
    max_nodes: int = Field(ge=1, le=450)
    """The most nodes this pool may ever have; 450 is EKS's default quota for a node group."""
    capacity: Capacity = OnDemand()
    """Where the nodes come from."""
    root_volume_gib: int = Field(default=500, ge=100, le=16384)
    """Holds the container images; scratch space is on the instance store."""
    ami_release: str | None = None
    """EKS AMI release; default: the one pinned in the catalogue."""
    placement_group: Literal["auto", True, False] = "auto"
    """Whether nodes share a rack-level group; automatic: on demand and with EFA yes, else no."""
    labels: dict[str, str] = Field(default_factory=dict)
    scale: Literal["manual", "queue"] = "manual"
    """What starts and removes nodes: `meks scale`, or jobs in a queue."""
    idle_minutes: int = Field(default=15, ge=1, le=1440)
    """With `scale: queue`, how long a node stays without a job before it goes."""


class Platform(Model):
    """What runs in the cluster before any job."""

    namespace: forms.DnsLabel = Field(default="megatron-workshop", max_length=40)
    """Of the jobs, their claim and their network policies."""
    pod_security: Literal["restricted", "privileged"] = "restricted"
    """The Pod Security level that the namespace enforces; the host network needs `privileged`."""
    dcgm_exporter: bool = True
    """GPU metrics for Prometheus, from every GPU node."""
    etcd: bool = False
    """Where the ranks of jobs with `runtime.rendezvous: etcd` meet."""
    workload: Workload = "pytorchjob"
    """What runs the ranks of jobs; a job file may say otherwise. docs/workloads.md"""
    kueue: bool = False


class Grafana(Model):
    """The Grafana that gets the dashboards."""

    url: Annotated[str, forms.pattern("private_url")]
    token_secret: forms.DnsName
    """A Kubernetes Secret that holds a service account's token as `token`: `meks secret set`."""


class Observability(Model):
    """Managed metrics, alarms and a budget."""

    enabled: bool = False
    metrics: Literal["amp", "cloudwatch", "own"] = "amp"
    """Where metrics go: managed Prometheus, CloudWatch, or your own Prometheus."""
    prometheus_url: Annotated[str, forms.pattern("web_url")] | None = None
    """Address of your own Prometheus; `meks apply` asks it whether it has the rules."""
    alarm_email: Annotated[str, forms.pattern("email")] | None = None
    webhook_secret: Annotated[str, forms.pattern("aws_secret")] | None = None
    """A secret of AWS Secrets Manager that holds the HTTPS address which alarms are posted to."""
    monthly_budget_usd: float | None = Field(default=None, gt=0)
    retention_days: int = Field(default=150, ge=1, le=1095)
    """How long metrics are kept."""
    grafana: Grafana | None = None
    """Where `meks apply` puts the dashboards."""


class Team(Model):
    """A team that shares the cluster with others, and its part of it."""

    name: forms.DnsLabel = Field(max_length=20)
    role_arns: tuple[forms.RoleArn, ...] = Field(min_length=1)
    """Roles that may view and change what is in the team's namespace, and nothing elsewhere."""
    namespace: forms.DnsLabel | None = Field(default=None, max_length=40)
    gpus: int = Field(ge=0)
    """How many GPUs are reserved for the team."""
    may_borrow: bool = True
    """Whether it may also use GPUs that other teams leave idle; with `platform.kueue` alone."""
    priority: int = Field(default=0, ge=-1_000_000_000, le=1_000_000_000)


class Prices(Model):
    """What you pay in USD instead of list prices: discounts, Capacity Blocks, other regions."""

    instance_hour: dict[str, Usd] = Field(default_factory=dict)
    """An hour of a node, by instance type."""
    control_plane_hour: Usd | None = None
    """EKS itself, by default 0.10."""
    nat_hour: Usd | None = None
    endpoint_hour: Usd | None = None
    """One interface endpoint in one zone."""
    lustre_gib_month: Usd | None = None


class ClusterConfig(Model):
    """A cluster file."""

    schema_version: forms.SchemaVersion
    name: forms.DnsLabel = Field(max_length=20)
    """Prefix of every name."""
    region: Annotated[str, forms.pattern("region")]
    """Where everything is made."""
    availability_zones: tuple[forms.Zone, ...] = Field(min_length=1, max_length=6)
    kubernetes_version: Annotated[str, forms.pattern("kubernetes")] = "1.36"
    """Quoted. Add-ons and AMI are pinned for the default version."""
    access: Access
    network: Network = Network()
    existing_cluster: Annotated[str, forms.pattern("eks_name")] | None = None
    """An EKS cluster to use as it is: no Network and no Cluster stack."""
    system_nodes: SystemNodes = SystemNodes()
    gpu_pools: tuple[GpuPool, ...] = Field(min_length=1)
    """Node groups of GPU nodes."""
    storage: Storage = Storage()
    images: Images = Images()
    platform: Platform = Platform()
    teams: tuple[Team, ...] = ()
    """Teams that share the cluster, docs/teams.md. Default: one, in the platform's namespace."""
    observability: Observability = Observability()
    prices: Prices = Prices()
    tags: dict[str, str] = Field(default_factory=dict)
    """On every AWS resource that takes tags; at most 40."""
    permissions_boundary_arn: Annotated[str, forms.pattern("policy_arn")] | None = None
    """On every role that is made."""
