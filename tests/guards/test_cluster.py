"""The control plane, who reaches it, its add-ons, and the bastion."""

import pytest

from tests.guards.slips import ABSENT, in_template

CLUSTER, ENTRY, VPC = "EKS::Cluster", "EKS::AccessEntry", "ResourcesVpcConfig"
SERVICES = "KubernetesNetworkConfig ServiceIpv4Cidr"
GONE = "AWS::CloudFormation::WaitConditionHandle"
CNI, DNS, GROUP = "EKS::Addon vpccni", "EKS::Addon coredns", "EKS::Nodegroup System"
ROLES = "PodIdentityAssociations"
VALUES = '{"enableNetworkPolicy": "true", "env": {"WARM_IP_TARGET": "2"}}'


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (CLUSTER, f"{VPC} PublicAccessCidrs", ABSENT, "ENDPOINT_OPEN"),
        (CLUSTER, f"{VPC} PublicAccessCidrs", ["0.0.0.0/0"], "ENDPOINT_OPEN"),
        (CLUSTER, f"{VPC} PublicAccessCidrs", ["10.0.0.0/8"], "RANGE"),
        (CLUSTER, f"{VPC} EndpointPublicAccess", False, "CLUSTER_CONTROL"),
        (CLUSTER, f"{VPC} SubnetIds", lambda ids: ids[:1], "CLUSTER_CONTROL"),
        (CLUSTER, "AccessConfig AuthenticationMode", "CONFIG_MAP", "CLUSTER_CONTROL"),
        (CLUSTER, "DeletionProtection", False, "CLUSTER_CONTROL"),
        (CLUSTER, "EncryptionConfig", ABSENT, "CLUSTER_CONTROL"),
        (CLUSTER, "Logging ClusterLogging EnabledTypes 1", ABSENT, "CLUSTER_CONTROL"),
        (CLUSTER, "Version", "1.29", "CLUSTER_VERSION"),
        (CLUSTER, "Version", "1.34", "VERSION_SKEW"),
        (CLUSTER, "DependsOn", ABSENT, "START_ORDER"),
        ("Logs::LogGroup", "RetentionInDays", ABSENT, "CLUSTER_CONTROL"),
        (ENTRY, "Type", GONE, "ACCESS_ENTRY"),
    ],
)
def test_mistakes_in_the_control_plane(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{VPC} PublicAccessCidrs", ["198.51.100.7/32", "203.0.113.0/24"]),
        ("AccessConfig AuthenticationMode", "API_AND_CONFIG_MAP"),
        (SERVICES, "192.168.0.0/20"),
    ],
)
def test_other_control_planes_that_work(path, value):
    """Nothing is found in them."""
    assert in_template(CLUSTER, path, value) == set()


def test_people_reach_a_private_endpoint():
    """Its group admits the VPC; EKS's own rules admit nodes only."""
    rule = "EC2::SecurityGroupIngress EndpointFromVpc"
    assert in_template(rule, "ToPort", 443, "private-cluster") == set()
    assert in_template(rule, "Type", GONE, "private-cluster") == {"CLUSTER_CONTROL"}


@pytest.mark.parametrize(
    ("path", "value", "codes"),
    [
        ("InstanceType", "t3.small", set()),
        ("SubnetId", ABSENT, {"CLUSTER_CONTROL"}),
        ("LaunchTemplate", ABSENT, {"CLUSTER_CONTROL"}),
        ("BlockDeviceMappings 0 Ebs Encrypted", False, {"ROOT_VOLUME"}),
    ],
)
def test_only_session_manager_opens_the_bastion(path, value, codes):
    """It has a subnet, requires tokens, and nothing on its disk can be read."""
    assert in_template("EC2::Instance", path, value, "without_a_way_out") == codes


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (DNS, "Type", GONE, "ADDON_SETTINGS"),
        (DNS, "AddonName", "core-dns", "ADDON_SETTINGS"),
        (DNS, "DependsOn", ABSENT, "START_ORDER"),
        (DNS, "DependsOn", ["Poolp4d"], "START_ORDER"),
        (GROUP, "DependsOn", ABSENT, "START_ORDER"),
        (DNS, "AddonVersion", "1.13.2", "ADDON_SETTINGS"),
        (DNS, "ResolveConflicts", "NONE", "ADDON_SETTINGS"),
        (CNI, ROLES, ABSENT, "ADDON_SETTINGS"),
        (CNI, f"{ROLES} 0 ServiceAccount", "vpc-cni", "ADDON_SETTINGS"),
        (CNI, "ConfigurationValues", ABSENT, "ADDON_SETTINGS"),
        (CNI, "ConfigurationValues", VALUES.replace("true", "false"), "ADDON_SETTINGS"),
        ("EKS::PodIdentityAssociation", "Type", GONE, "ROLE_TRUST"),
    ],
)
def test_mistakes_in_addons(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


def test_other_addons_that_work():
    """Other numbers of warm addresses, and another way to solve conflicts."""
    assert in_template(CNI, "ConfigurationValues", VALUES) == set()
    assert in_template(DNS, "ResolveConflicts", "PRESERVE") == set()
