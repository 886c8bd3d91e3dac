"""Add-ons, their order, versions, settings and roles."""

import pytest

from tests.guards.slips import ABSENT, in_template

CNI, DNS, GROUP = "EKS::Addon vpccni", "EKS::Addon coredns", "EKS::Nodegroup System"
ROLES = "PodIdentityAssociations"
VALUES = '{"enableNetworkPolicy": "true", "env": {"WARM_IP_TARGET": "2"}}'
GONE = "AWS::CloudFormation::WaitConditionHandle"


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (DNS, "Type", GONE, "ADDON_SETTINGS"),
        (DNS, "AddonName", "core-dns", "ADDON_NAME"),
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
