"""Clusters that bring something along or use another kind of storage, for tests of all of them."""

from collections.abc import Mapping

from tests.stacks.synthesis import Edit, Json

VPC = "vpc-0123456789abcdef0"
NODES = "sg-0123456789abcdef0"
SUBNETS = {"us-east-2a": "subnet-0123456789abcdef0", "us-east-2b": "subnet-0123456789abcdef1"}
ACCOUNT = "123456789012"
KEY = f"arn:aws:kms:us-east-2:{ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/Boundary"
CONNECTION = (
    f"arn:aws:codeconnections:us-east-2:{ACCOUNT}:connection/01234567-89ab-cdef-0123-456789abcdef"
)
LUSTRE = {
    "id": "fs-0123456789abcdef0",
    "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
    "mount_name": "abcdefgh",
}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n-----END CERTIFICATE-----\n"


def existing_vpc(cluster: Json) -> None:
    """Put everything into a VPC that exists."""
    cluster["network"] = {
        "vpc_id": VPC,
        "vpc_cidr": "10.8.0.0/20",
        "private_subnets": dict(SUBNETS),
        "interface_endpoints": ["ecr.api"],
    }


def existing_vpc_of_unknown_range(cluster: Json) -> None:
    """Do so behind a private endpoint, and do not say which addresses it has."""
    cluster["network"] = {"vpc_id": VPC, "private_subnets": dict(SUBNETS)}
    cluster["access"].update(public_cidrs=[], private_route="vpn")


def existing_cluster(cluster: Json) -> None:
    """Use an EKS cluster that exists, with a new file system beside it."""
    cluster["existing_cluster"] = "theirs"
    cluster["network"] = {
        "vpc_id": VPC,
        "private_subnets": {"us-east-2b": SUBNETS["us-east-2b"]},
        "node_security_group_id": NODES,
    }


def existing_cluster_and_lustre(cluster: Json) -> None:
    """Make nothing but bucket, key and images."""
    cluster["existing_cluster"] = "theirs"
    cluster["storage"]["lustre"]["existing"] = dict(LUSTRE)


def existing_lustre(cluster: Json) -> None:
    """Make a cluster around a file system."""
    cluster["storage"]["lustre"]["existing"] = dict(LUSTRE)


def folder_of_existing_lustre(cluster: Json) -> None:
    """Keep to one folder of it."""
    cluster["storage"]["lustre"]["existing"] = {**LUSTRE, "path": "/teams/nlp"}


def company_rules(cluster: Json) -> None:
    """Follow the rules of a company: key, boundary, proxy, certificates, tags."""
    cluster["storage"]["kms_key_arn"] = KEY
    cluster["permissions_boundary_arn"] = BOUNDARY
    cluster["tags"] = {"team": "nlp"}
    cluster["network"] = {
        "proxy": {
            "http": "http://proxy.example.com:3128",
            "https": "http://proxy.example.com:3128",
            "no_proxy": [".example.com"],
        },
        "ca_bundle": CERTIFICATE,
        "interface_endpoints": ["ec2", "ecr.api", "ecr.dkr", "eks-auth"],
    }


def without_a_way_out(cluster: Json) -> None:
    """Use endpoints, a mirror and a bastion instead of NAT and a public endpoint."""
    cluster["network"] = {
        "nat_gateways": 0,
        "interface_endpoints": [
            *("autoscaling", "ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth"),
            *("ssm", "ssmmessages"),
        ],
    }
    cluster["access"].update(public_cidrs=[], private_route="ssm_bastion")
    cluster["images"] = {"mirror": f"{ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com/mirror"}
    cluster["platform"] = {"etcd": True, "workload": "trainjob", "kueue": True}
    cluster["gpu_pools"][0].update(scale="queue", idle_minutes=30)


def scratch(cluster: Json) -> None:
    """Use a file system that is not replicated, and JobSets."""
    cluster["storage"]["lustre"]["deployment"] = "scratch_2"
    cluster["platform"] = {"workload": "jobset"}


def lustre_over_efa(cluster: Json) -> None:
    """Reach the file servers over EFA."""
    cluster["storage"]["lustre"].update(efa=True, capacity_gib=9600)


def repositories(cluster: Json) -> None:
    """Show two prefixes of S3 as directories."""
    cluster["storage"]["lustre"]["data_repositories"] = [
        {"path": "/corpus", "s3_uri": "s3://corpora/english"},
        {
            "path": "/results",
            "s3_uri": "s3://results",
            "import_changes": False,
            "export_changes": True,
        },
    ]


def two_zones(cluster: Json) -> None:
    """Have pools in two zones, and a file system in each."""
    cluster["gpu_pools"].append(
        dict(cluster["gpu_pools"][0], name="other", availability_zone="us-east-2a")
    )
    cluster["storage"]["lustre"]["per_zone"] = True


def homes(cluster: Json) -> None:
    """Add EFS."""
    cluster["storage"]["efs"] = True


def teams(cluster: Json) -> None:
    """Share it: the first team has what was there before, the second a folder of its own."""
    role = f"arn:aws:iam::{ACCOUNT}:role/"
    cluster["teams"] = [
        {
            "name": "nlp",
            "namespace": "megatron-workshop",
            "role_arns": [f"{role}Nlp"],
            "gpus": 8,
        },
        {"name": "vision", "role_arns": [f"{role}Vision"], "gpus": 8},
    ]


def github(cluster: Json) -> None:
    """Build from GitHub, on each push."""
    cluster["images"] = {
        "prefix": "staging-",
        "source": {
            "type": "github",
            "repository": "example/megatron-eks",
            "branch": "release/1.x",
            "connection_arn": CONNECTION,
            "webhook": True,
        },
    }


VARIATIONS: Mapping[str, Edit] = {
    edit.__name__: edit
    for edit in (
        existing_vpc,
        existing_vpc_of_unknown_range,
        existing_cluster,
        existing_cluster_and_lustre,
        existing_lustre,
        folder_of_existing_lustre,
        company_rules,
        without_a_way_out,
        scratch,
        lustre_over_efa,
        repositories,
        two_zones,
        homes,
        teams,
        github,
    )
}
