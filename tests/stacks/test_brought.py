"""What exists already is used and not made again, and nothing of it is looked up."""

import json

import pytest

from tests.variations import BOUNDARY, KEY, NODES, SUBNETS, VARIATIONS, VPC


@pytest.fixture
def varied(changed):
    """Return a function that synthesises a variation by its name."""
    return lambda name: changed(VARIATIONS[name])


def test_an_existing_vpc_gets_a_group_for_the_nodes_and_the_endpoints_asked_for(varied):
    """Its subnets, routes and logs are its owner's."""
    assembly = varied("existing_vpc")
    network = assembly.template("Network")
    kinds = {resource["Type"] for resource in network.resources.values()}
    assert kinds == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::VPCEndpoint",
    }
    assert {group["VpcId"] for group in network.properties("AWS::EC2::SecurityGroup")} == {VPC}
    _, endpoint = network.only("AWS::EC2::VPCEndpoint")
    assert endpoint["SubnetIds"] == list(SUBNETS.values())
    [rule] = network.resources["EndpointSecurityGroup"]["Properties"]["SecurityGroupIngress"]
    assert rule["CidrIp"] == "10.8.0.0/20"


def test_nodes_control_plane_and_file_system_stand_in_the_subnets_that_exist(varied):
    """Each pool in its zone's."""
    assembly = varied("existing_vpc")
    cluster = assembly.template("Cluster")
    _, eks = cluster.only("AWS::EKS::Cluster")
    assert eks["ResourcesVpcConfig"]["SubnetIds"] == list(SUBNETS.values())
    pool = next(
        group
        for group in cluster.properties("AWS::EKS::Nodegroup")
        if group.get("NodegroupName") == "p4d"
    )
    assert pool["Subnets"] == [SUBNETS["us-east-2b"]]
    _, lustre = assembly.template("Storage").only("AWS::FSx::FileSystem")
    assert lustre["SubnetIds"] == [SUBNETS["us-east-2b"]]


def test_without_its_range_a_vpc_is_any_private_one(varied):
    """The private endpoint would otherwise answer nobody."""
    cluster = varied("existing_vpc_of_unknown_range").template("Cluster")
    admitted = {rule["CidrIp"] for rule in cluster.properties("AWS::EC2::SecurityGroupIngress")}
    assert admitted == {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"}


def test_an_existing_cluster_leaves_storage_and_images(varied):
    """And the new file system opens its ports to the group that its nodes carry."""
    assembly = varied("existing_cluster")
    assert set(assembly.templates()) == {"Images", "Storage"}
    storage = assembly.template("Storage")
    group = storage.resources["LustreSecurityGroup"]["Properties"]
    assert group["VpcId"] == VPC
    assert {rule["SourceSecurityGroupId"] for rule in group["SecurityGroupIngress"]} == {NODES}
    calls = storage.properties("AWS::EC2::SecurityGroupIngress")
    assert {rule["FromPort"] for rule in calls if rule["GroupId"] == NODES} == {988, 1018}


def test_an_existing_file_system_is_not_made_again(varied):
    """The bucket for checkpoints still is."""
    storage = varied("existing_cluster_and_lustre").template("Storage")
    assert storage.of_type("AWS::FSx::FileSystem") == {}
    assert storage.of_type("AWS::EC2::SecurityGroup") == {}
    assert list(storage.body["Outputs"]) == ["BucketName", "JobRoleArn"]


def test_a_key_that_exists_encrypts_what_the_stack_keeps(varied):
    """And no key is made beside it."""
    storage = varied("company_rules").template("Storage")
    assert storage.of_type("AWS::KMS::Key") == {}
    _, lustre = storage.only("AWS::FSx::FileSystem")
    assert lustre["KmsKeyId"] == KEY
    encryption = storage.resources["Bucket"]["Properties"]["BucketEncryption"]
    assert KEY in json.dumps(encryption)


def test_every_role_has_the_boundary(varied):
    """One without it would be refused in an account that demands it."""
    roles = [
        role
        for template in varied("company_rules").templates().values()
        for role in template.properties("AWS::IAM::Role")
    ]
    assert len(roles) > 5
    assert {role["PermissionsBoundary"] for role in roles} == {BOUNDARY}


def user_data(assembly):
    """Return the user data of each launch template of nodes, by its logical id."""
    templates = assembly.template("Cluster").of_type("AWS::EC2::LaunchTemplate")
    return {
        name: body["Properties"]["LaunchTemplateData"].get("UserData", {}).get("Fn::Base64", "")
        for name, body in templates.items()
    }


def test_nodes_know_proxy_and_certificates_before_they_join(varied):
    """System nodes too; nodeadm sets the variables for containerd and the kubelet."""
    texts = user_data(varied("company_rules")).values()
    assert len(texts) == 2
    for text in texts:
        script, config = text.index("update-ca-trust"), text.index("application/node.eks.aws")
        assert script < config
        node = json.loads(text[text.index("{", config) : text.rindex("}") + 1])
        variables = node["spec"]["instance"]["environment"]["default"]
        assert variables["HTTPS_PROXY"] == "http://proxy.example.com:3128"
        direct = variables["NO_PROXY"].split(",")
        assert {
            "10.0.0.0/16",
            "172.20.0.0/16",
            "169.254.169.254",
            "169.254.170.23",
            ".svc",
            ".cluster.local",
            ".s3.us-east-2.amazonaws.com",
            ".dkr.ecr.us-east-2.amazonaws.com",
            "eks-auth.us-east-2.api.aws",
            ".example.com",
        } <= set(direct)


def test_system_nodes_without_settings_have_no_user_data(assembly):
    """New user data would replace every node that runs."""
    assert sorted(map(bool, user_data(assembly).values())) == [False, True]


def test_a_bastion_lets_nobody_in_and_ends_at_session_manager(varied):
    """No port, no key and no address: IAM alone decides who forwards through it."""
    cluster = varied("without_a_way_out").template("Cluster")
    name, bastion = cluster.only("AWS::EC2::Instance")
    assert cluster.body["Outputs"]["BastionId"]["Value"] == {"Ref": name}
    assert "KeyName" not in bastion
    assert "NetworkInterfaces" not in bastion
    [group] = cluster.properties("AWS::EC2::SecurityGroup")
    assert "SecurityGroupIngress" not in group
    assert [rule["FromPort"] for rule in group["SecurityGroupEgress"]] == [443]
    policies = json.dumps(
        [role for role in cluster.properties("AWS::IAM::Role") if "bastion" in role["Description"]]
    )
    assert policies.count("AmazonSSMManagedInstanceCore") == 1
