"""Kinds of storage besides the default: each as AWS takes it, and open to the nodes."""

import pytest

from tests.variations import VARIATIONS

SERVERS = {"Fn::GetAtt": ["LustreSecurityGroup", "GroupId"]}


@pytest.fixture
def storage(changed):
    """Return a function that synthesises a variation's Storage template."""
    return lambda name: changed(VARIATIONS[name]).template("Storage")


def test_scratch_says_its_version_and_nothing_that_it_does_not_take(storage):
    """Without one it is 2.10, which nodes cannot mount (aws-fsx-csi-driver issue 437)."""
    _, lustre = storage("scratch").only("AWS::FSx::FileSystem")
    assert lustre["FileSystemTypeVersion"] == "2.15"
    assert "KmsKeyId" not in lustre
    assert lustre["LustreConfiguration"] == {
        "DeploymentType": "SCRATCH_2",
        "DataCompressionType": "LZ4",
    }


def test_lustre_over_efa_opens_everything_between_servers_and_nodes_both_ways(storage):
    """EFA is no port: each of the four directions is a rule that names its group."""
    template = storage("lustre_over_efa")
    _, lustre = template.only("AWS::FSx::FileSystem")
    assert lustre["LustreConfiguration"]["EfaEnabled"] is True
    assert lustre["LustreConfiguration"]["MetadataConfiguration"] == {"Mode": "AUTOMATIC"}
    group = template.resources["LustreSecurityGroup"]["Properties"]
    for direction in ("SecurityGroupIngress", "SecurityGroupEgress"):
        [rule] = group[direction]
        assert rule["IpProtocol"] == "-1"
        assert "FromPort" not in rule
    for kind, peer in (
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        rules = template.properties(kind)
        assert [rule["IpProtocol"] for rule in rules] == ["-1", "-1"]
        assert [rule[peer] for rule in rules] == [SERVERS, SERVERS]
        assert sorted(rule["GroupId"] == SERVERS for rule in rules) == [False, True]


def test_prefixes_of_s3_are_associated_in_the_directions_asked_for(storage):
    """What is deleted in the file system stays in S3."""
    template = storage("repositories")
    made = {
        repository["FileSystemPath"]: repository
        for repository in template.properties("AWS::FSx::DataRepositoryAssociation")
    }
    assert made["/corpus"]["DataRepositoryPath"] == "s3://corpora/english"
    assert made["/corpus"]["S3"] == {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}}
    assert made["/results"]["S3"] == {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}}
    assert {repository["FileSystemId"]["Ref"] for repository in made.values()} == {"Lustre"}


def test_each_zone_with_a_pool_has_its_file_system(storage):
    """The first keeps its name and outputs, so that a second zone moves nothing."""
    template = storage("two_zones")
    zones = {
        name: body["Properties"]["SubnetIds"][0]["Fn::ImportValue"]
        for name, body in template.of_type("AWS::FSx::FileSystem").items()
    }
    assert set(zones) == {"Lustre", "LustreUseast2a"}
    assert "PrivateSubnetuseast2b" in zones["Lustre"]
    assert "PrivateSubnetuseast2a" in zones["LustreUseast2a"]
    outputs = {key: output["Value"] for key, output in template.body["Outputs"].items()}
    assert outputs["LustreId"] == {"Ref": "Lustre"}
    assert outputs["LustreIdUseast2a"] == {"Ref": "LustreUseast2a"}
    assert {"LustreDnsNameUseast2a", "LustreMountNameUseast2a"} <= set(outputs)


def test_efs_is_encrypted_in_every_zone_and_open_to_nodes_alone(storage):
    """On NFS's port; the access point makes every file the pods' user's."""
    template = storage("homes")
    file_system, properties = template.only("AWS::EFS::FileSystem")
    assert properties["Encrypted"] is True
    assert properties["KmsKeyId"] == {"Fn::GetAtt": ["Key", "Arn"]}
    targets = template.properties("AWS::EFS::MountTarget")
    assert len({target["SubnetId"]["Fn::ImportValue"] for target in targets}) == 3
    _, point = template.only("AWS::EFS::AccessPoint")
    assert point["PosixUser"] == {"Uid": "10001", "Gid": "10001"}
    assert point["RootDirectory"]["CreationInfo"]["OwnerUid"] == "10001"
    [group] = [
        group
        for name, group in template.of_type("AWS::EC2::SecurityGroup").items()
        if name.startswith("Efs")
    ]
    [rule] = group["Properties"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"], rule["IpProtocol"]) == (2049, 2049, "tcp")
    assert "NodeSecurityGroup" in rule["SourceSecurityGroupId"]["Fn::ImportValue"]
    assert template.body["Outputs"]["EfsId"]["Value"] == {"Ref": file_system}


@pytest.mark.parametrize(("retain", "policy"), [(True, "Retain"), (False, "Delete")])
def test_retain_decides_over_all_kinds(changed, retain, policy):
    """Associations, second file systems and EFS stay with the data, or go with them."""

    def everything(cluster):
        for name in ("two_zones", "homes", "repositories"):
            VARIATIONS[name](cluster)
        cluster["storage"]["lustre"]["data_repositories"][1]["export_changes"] = False
        cluster["storage"]["retain"] = retain

    template = changed(everything).template("Storage")
    policies = {
        name: (resource["DeletionPolicy"], resource["UpdateReplacePolicy"])
        for name, resource in template.resources.items()
        # The jobs' role holds nothing, and is made again.
        if name != "JobRole"
    }
    assert set(policies.values()) == {(policy, policy)}, policies


def test_efs_brings_its_driver(changed):
    """With permissions through Pod Identity, as every add-on has them."""
    cluster = changed(VARIATIONS["homes"]).template("Cluster")
    [addon] = [
        addon
        for addon in cluster.properties("AWS::EKS::Addon")
        if addon["AddonName"] == "aws-efs-csi-driver"
    ]
    [association] = addon["PodIdentityAssociations"]
    assert association["ServiceAccount"] == "efs-csi-controller-sa"


def test_nodes_that_can_reach_lustre_over_efa_are_set_up_for_it(changed):
    """Before they join; p4d's EFA carries no Lustre, and its nodes would only lose minutes."""

    def two_families(cluster):
        VARIATIONS["lustre_over_efa"](cluster)
        pool = dict(cluster["gpu_pools"][0], name="p5", instance_type="p5.48xlarge")
        cluster["gpu_pools"].append(pool)

    templates = changed(two_families).template("Cluster").properties("AWS::EC2::LaunchTemplate")
    texts = {
        data["InstanceType"]: data.get("UserData", {}).get("Fn::Base64", "")
        for data in (template["LaunchTemplateData"] for template in templates)
    }
    script, config = (texts["p5.48xlarge"].index(part) for part in ("./setup.sh", "NodeConfig"))
    assert script < config
    assert "./setup.sh" not in texts["p4d.24xlarge"]
    assert texts["c5.2xlarge"] == ""
