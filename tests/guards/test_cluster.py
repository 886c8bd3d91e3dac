"""The control plane, who reaches it, its add-ons, and roles."""

import pytest

from tests.guards.slips import ABSENT, in_template

CLUSTER, VPC = "EKS::Cluster", "ResourcesVpcConfig"
GONE = "AWS::CloudFormation::WaitConditionHandle"
ADDON, DNS, GROUP = "EKS::Addon vpccni", "EKS::Addon coredns", "EKS::Nodegroup System"
LINKS = "PodIdentityAssociations"
VALUES = '{"enableNetworkPolicy": "true", "env": {"WARM_IP_TARGET": "2"}}'
TRUST = "AssumeRolePolicyDocument Statement 0"
TAGS = f"{TRUST} Condition StringEquals"
RIGHTS = "Policies 0 PolicyDocument Statement"
JOBS, NODES, CNI = "IAM::Role JobRole", "IAM::Role NodeRole", "IAM::Role Addonsvpccni"
FLOW_LOGS = "IAM::Role FlowLogRole"
WRITING = {"Effect": "Allow", "Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::own/runs/*"]}
EVERYTHING, BUILD = {"Action": ["s3:*"], "Resource": ["*"]}, "IAM::Role MegatronRole"
ENTRY, MANAGED = "EKS::AccessEntry", "arn:aws:iam::aws:policy"
OTHER_BUCKET = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::a/b/*"]}


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (CLUSTER, f"{VPC} PublicAccessCidrs", ABSENT, "ENDPOINT_OPEN"),
        (CLUSTER, f"{VPC} PublicAccessCidrs", ["0.0.0.0/0"], "ENDPOINT_OPEN"),
        (CLUSTER, f"{VPC} EndpointPublicAccess", False, "CLUSTER_CONTROL"),
        (CLUSTER, f"{VPC} SubnetIds", lambda ids: ids[:1], "CLUSTER_CONTROL"),
        (CLUSTER, "AccessConfig AuthenticationMode", "CONFIG_MAP", "CLUSTER_CONTROL"),
        (CLUSTER, "DeletionProtection", False, "CLUSTER_CONTROL"),
        (CLUSTER, "KubeApiServerConfig", ABSENT, "CLUSTER_CONTROL"),
        (CLUSTER, "EncryptionConfig", ABSENT, "CLUSTER_CONTROL"),
        (CLUSTER, "Logging ClusterLogging EnabledTypes 1", ABSENT, "CLUSTER_CONTROL"),
        (DNS, "Type", GONE, "ADDON_SETTINGS"),
        (DNS, "AddonName", "core-dns", "ADDON_SETTINGS"),
        (GROUP, "DependsOn", ABSENT, "START_ORDER"),
        (DNS, "DependsOn", ABSENT, "START_ORDER"),
        ("EKS::Addon kubeproxy", "AddonVersion", "v1.37.0-eksbuild.1", "ADDON_SETTINGS"),
        ("EKS::Addon kubeproxy", "AddonVersion", "v1.32.0-eksbuild.1", "ADDON_SETTINGS"),
        (ADDON, "AddonVersion", "v1.12.0-eksbuild.1", "ADDON_SETTINGS"),
        (ADDON, "ConfigurationValues", VALUES[1:], "ADDON_SETTINGS"),
        ("Logs::LogGroup ControlPlane", "LogGroupName", "/aws/eks/own/cluster", "CLUSTER_CONTROL"),
        (DNS, "ResolveConflicts", "NONE", "ADDON_SETTINGS"),
        (ADDON, LINKS, ABSENT, "ADDON_SETTINGS"),
        (ADDON, f"{LINKS} 0 ServiceAccount", "vpc-cni", "ADDON_SETTINGS"),
        (ADDON, "ConfigurationValues", ABSENT, "ADDON_SETTINGS"),
        (ADDON, "ConfigurationValues", VALUES.replace("true", "false"), "ADDON_SETTINGS"),
        ("EKS::PodIdentityAssociation", "Type", GONE, "ROLE_TRUST"),
        # A role gets, gives or lacks rights by mistake.
        (NODES, f"{TRUST} Principal Service", "eks.amazonaws.com", "ROLE_TRUST"),
        (CNI, f"{TRUST} Action", ["sts:AssumeRole"], "ROLE_TRUST"),
        (JOBS, f"{TRUST} Principal Service", "ec2.amazonaws.com", "ROLE_TRUST"),
        (JOBS, f"{TRUST} Principal", {"AWS": "*"}, "ROLE_TRUST"),
        (JOBS, f"{TRUST} Effect", "Deny", "ROLE_TRUST"),
        (JOBS, f"{TAGS} aws:RequestTag/kubernetes-namespace", "default", "ROLE_TRUST"),
        (JOBS, f"{TAGS} aws:RequestTag/eks-cluster-name", ABSENT, "ROLE_TRUST"),
        (FLOW_LOGS, f"{TRUST} Condition", ABSENT, "ROLE_TRUST"),
        (NODES, "ManagedPolicyArns 1", ABSENT, "NODE_ROLE"),
        (NODES, "ManagedPolicyArns 0", "arn:aws:iam::aws:policy/AmazonEKSWorkrNode", "NODE_ROLE"),
        (CNI, "ManagedPolicyArns", [], "NODE_ROLE"),
        (JOBS, f"{RIGHTS} 0 Resource 0", {"Fn::GetAtt": ["Bucket", "Arn"]}, "POLICY"),
        (JOBS, f"{RIGHTS} 1", ABSENT, "POLICY"),
        (JOBS, f"{RIGHTS} 1 Condition StringLike s3:prefix", ["dta/*"], "POLICY"),
        (JOBS, f"{RIGHTS} 1 Condition StringLike s3:prefix", ["data/own/*"], "POLICY"),
        (JOBS, f"{RIGHTS} 2", ABSENT, "POLICY"),
        (JOBS, f"{RIGHTS} 2 Resource", ["arn:aws:kms:us-east-2:111122223333:key/a"], "POLICY"),
        (JOBS, "Policies", ABSENT, "POLICY"),
        (JOBS, RIGHTS, lambda old: [*old, WRITING], "POLICY"),
        (JOBS, RIGHTS, lambda old: [*old, OTHER_BUCKET], "POLICY"),
        (JOBS, RIGHTS, lambda old: [*old, OTHER_BUCKET | EVERYTHING], "POLICY"),
        (ENTRY, "PrincipalArn", "arn:aws:iam::111122223333:root", "CLUSTER_CONTROL"),
        (ENTRY, "AccessPolicies", ABSENT, "CLUSTER_CONTROL"),
        (ENTRY, "AccessPolicies 0 AccessScope Type", "namespace", "CLUSTER_CONTROL"),
        (ENTRY, "Type", GONE, "CLUSTER_CONTROL"),
        (NODES, "ManagedPolicyArns 1", f"{MANAGED}/AdministratorAccess", "POLICY"),
        (JOBS, "ManagedPolicyArns", [f"{MANAGED}/AmazonS3FullAccess"], "POLICY"),
        (BUILD, f"{RIGHTS} 2 Action", lambda old: [e for e in old if "Put" not in e], "POLICY"),
        (BUILD, f"{RIGHTS} 1", ABSENT, "POLICY"),
        (FLOW_LOGS, f"{RIGHTS} 0 Action", ["logs:CreateLogStream"], "POLICY"),
        (BUILD, "Description", f"made with hf_{'a1' * 17}", "SECRET_IN_MANIFEST"),
    ],
)
def test_mistakes(resource, path, value, code):
    """In the control plane, its add-ons and roles: each is found under its code."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{VPC} PublicAccessCidrs", ["198.51.100.7/32", "203.0.113.0/24"]),
        ("AccessConfig AuthenticationMode", "API_AND_CONFIG_MAP"),
    ],
)
def test_other_control_planes_that_work(path, value):
    """Nothing is found in them."""
    assert in_template(CLUSTER, path, value) == set()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("KubernetesGroups", ["megatron-eks:vision"]),
        ("AccessPolicies", [{"PolicyArn": "AmazonEKSViewPolicy", "AccessScope": "cluster"}]),
    ],
)
def test_people_of_a_team_are_in_its_group_and_nowhere_else(path, value):
    """Another team's group, or a policy beside it, is found."""
    entry = f"{ENTRY} Teamsarnawsiam111122223333roleNlp"
    assert in_template(entry, path, value, "two-teams") == {"TEAM_RIGHTS"}


def test_a_team_reads_what_is_its_own():
    """The whole bucket is others' too, and the remedy opens no more of it."""
    role, path = "IAM::Role JobRolenlp", f"{RIGHTS} 0 Resource 0"
    wide = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/*"]]}
    assert in_template(role, path, wide, "two-teams") == {"TEAM_RIGHTS"}


def test_people_reach_a_private_endpoint():
    """Its group admits the VPC; EKS's own rules admit nodes only."""
    rule = "EC2::SecurityGroupIngress EndpointFromVpc"
    assert in_template(rule, "ToPort", 443, "private-cluster") == set()
    assert in_template(rule, "Type", GONE, "private-cluster") == {"CLUSTER_CONTROL"}


def test_other_addons_that_work():
    """Other numbers of warm addresses, and another way to solve conflicts."""
    assert in_template(ADDON, "ConfigurationValues", VALUES) == set()
    assert in_template(DNS, "ResolveConflicts", "PRESERVE") == set()


def test_more_rights():
    """Somebody may add rights of their own."""
    managed = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    metrics = {"Effect": "Allow", "Action": "cloudwatch:PutMetricData", "Resource": "*"}
    assert in_template(NODES, "ManagedPolicyArns", lambda old: [*old, managed]) == set()
    assert in_template(JOBS, RIGHTS, lambda old: [*old, metrics]) == set()


def test_who_may_only_write_leaves_results():
    """Nothing of a job reads them, so nothing else is needed there."""
    results = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/results/*"]]}
    writing = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": results}
    listing = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}
    assert in_template(JOBS, RIGHTS, lambda old: [*old, writing, listing]) == set()
