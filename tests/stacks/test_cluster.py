"""The Cluster stack: who gets in, what is recorded, and in which order nodes come up."""

import json

import pytest

NODE_POLICIES = {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}


def policies(role):
    """Return the names of the managed policies of a role."""
    return {arn["Fn::Join"][1][-1].rpartition("/")[2] for arn in role.get("ManagedPolicyArns", [])}


def add_ons(template):
    """Return logical id and body of each add-on by its name."""
    return {
        body["Properties"]["AddonName"]: (name, body)
        for name, body in template.of_type("AWS::EKS::Addon").items()
    }


def test_the_endpoint_answers_the_configured_addresses(cluster):
    """And the nodes, from inside the VPC, without leaving it."""
    _, properties = cluster.only("AWS::EKS::Cluster")
    network = properties["ResourcesVpcConfig"]
    assert network["EndpointPrivateAccess"] is True
    assert network["EndpointPublicAccess"] is True
    assert network["PublicAccessCidrs"] == ["203.0.113.0/24"]


def test_without_addresses_the_endpoint_is_private(changed):
    """An empty list left in place would mean 0.0.0.0/0 to EKS."""
    closed = changed(lambda cluster: cluster["access"].update(public_cidrs=[], private_route="vpn"))
    _, properties = closed.template("Cluster").only("AWS::EKS::Cluster")
    network = properties["ResourcesVpcConfig"]
    assert network["EndpointPrivateAccess"] is True
    assert network["EndpointPublicAccess"] is False
    assert "PublicAccessCidrs" not in network


def test_the_control_plane_stands_in_private_subnets(cluster):
    """Of every zone, so that it survives the loss of one."""
    _, properties = cluster.only("AWS::EKS::Cluster")
    subnets = [
        subnet["Fn::ImportValue"] for subnet in properties["ResourcesVpcConfig"]["SubnetIds"]
    ]
    assert len(set(subnets)) == 3
    assert all("RefPrivateSubnet" in subnet for subnet in subnets)


def test_all_five_logs_go_to_a_group_made_before(cluster):
    """EKS would make one without key and without end."""
    name, properties = cluster.only("AWS::EKS::Cluster")
    types = {item["Type"] for item in properties["Logging"]["ClusterLogging"]["EnabledTypes"]}
    assert types == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    group, logs = cluster.only("AWS::Logs::LogGroup")
    assert logs["LogGroupName"] == f"/aws/eks/{properties['Name']}/cluster"
    assert group in cluster.resources[name]["DependsOn"]


def test_secrets_are_encrypted_with_the_stacks_key(cluster):
    """Envelope encryption cannot be taken back, nor added without re-encrypting."""
    _, properties = cluster.only("AWS::EKS::Cluster")
    assert properties["EncryptionConfig"] == [
        {"Provider": {"KeyArn": {"Fn::GetAtt": ["Key", "Arn"]}}, "Resources": ["secrets"]}
    ]


def test_the_cluster_cannot_be_deleted_by_mistake(cluster, changed):
    """Until the file says so."""
    assert cluster.only("AWS::EKS::Cluster")[1]["DeletionProtection"] is True
    open_ = changed(lambda file: file["access"].update(deletion_protection=False))
    assert open_.template("Cluster").only("AWS::EKS::Cluster")[1]["DeletionProtection"] is False


def test_settings_that_only_creation_takes(cluster):
    """Changing one of them replaces the cluster."""
    _, properties = cluster.only("AWS::EKS::Cluster")
    assert properties["Name"] == "techpulse"
    assert properties["BootstrapSelfManagedAddons"] is False
    assert properties["KubernetesNetworkConfig"] == {"ServiceIpv4Cidr": "172.20.0.0/16"}
    assert properties["AccessConfig"] == {
        "AuthenticationMode": "API",
        "BootstrapClusterCreatorAdminPermissions": False,
    }


def test_version_and_support_are_what_the_plan_says(assembly, cluster):
    """Extended support is six times the price, so nobody gets it unasked."""
    _, properties = cluster.only("AWS::EKS::Cluster")
    assert properties["Version"] == assembly.plan.kubernetes_version
    assert properties["UpgradePolicy"] == {"SupportType": "STANDARD"}


def test_every_role_of_the_file_administers_the_cluster(cluster, changed):
    """Nobody else does; one more administrator leaves the others alone."""
    another = "arn:aws:iam::111122223333:role/team/Ml-Admin"

    def add(file):
        file["access"]["admin_role_arns"] = [another, *file["access"]["admin_role_arns"]]

    entries = changed(add).template("Cluster").of_type("AWS::EKS::AccessEntry")
    [(name, entry)] = cluster.of_type("AWS::EKS::AccessEntry").items()
    assert entries[name] == entry
    principals = {body["Properties"]["PrincipalArn"] for body in entries.values()}
    assert principals == {another, "arn:aws:iam::111122223333:role/Admin"}
    for body in entries.values():
        [policy] = body["Properties"]["AccessPolicies"]
        assert policy["AccessScope"] == {"Type": "cluster"}
        assert policy["PolicyArn"]["Fn::Join"][1][-1].endswith("/AmazonEKSClusterAdminPolicy")


def test_add_ons_are_those_of_the_plan(assembly, cluster):
    """Each at its pinned version; what the plan says wins over what EKS brought."""
    made = add_ons(cluster)
    assert list(made) == [addon.name for addon in assembly.plan.addons]
    for addon in assembly.plan.addons:
        properties = made[addon.name][1]["Properties"]
        assert properties["AddonVersion"] == addon.version
        assert properties["ResolveConflicts"] == "OVERWRITE"
        configuration = json.loads(properties.get("ConfigurationValues", "{}"))
        assert configuration == dict(addon.configuration)


def test_network_policies_are_enforced(cluster):
    """The VPC CNI ignores them unless it is told."""
    properties = add_ons(cluster)["vpc-cni"][1]["Properties"]
    values = json.loads(properties["ConfigurationValues"])
    assert values["enableNetworkPolicy"] == "true"
    # Add-ons start before any policy is applied, and none of them has one.
    assert values["env"]["NETWORK_POLICY_ENFORCING_MODE"] == "standard"


def test_an_add_on_without_a_pin_takes_ekss_default(changed):
    """A Kubernetes version that this release knows no add-ons for still deploys."""
    newer = changed(lambda file: file.update(kubernetes_version="1.36")).template("Cluster")
    for _, addon in add_ons(newer).values():
        assert "AddonVersion" not in addon["Properties"]
    for nodegroup in newer.properties("AWS::EKS::Nodegroup"):
        assert "ReleaseVersion" not in nodegroup
        assert nodegroup["Version"] == "1.36"


def test_add_ons_that_need_rights_get_them_through_pod_identity(assembly, cluster):
    """A role for each, which only pods of that service account can take."""
    made = add_ons(cluster)
    needy = {addon.name: addon for addon in assembly.plan.addons if addon.service_account}
    assert {"vpc-cni", "aws-ebs-csi-driver"} == set(needy)
    for name, addon in needy.items():
        [association] = made[name][1]["Properties"]["PodIdentityAssociations"]
        assert association["ServiceAccount"] == addon.service_account
        role = cluster.resources[association["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
        assert policies(role) == {addon.managed_policy}
        [trust] = role["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert trust["Action"] == ["sts:AssumeRole", "sts:TagSession"]


def test_nodes_come_after_what_makes_them_ready(cluster):
    """And before whatever is ready on a node only: it would time out without one."""
    made = add_ons(cluster)
    first = {made[name][0] for name in ("eks-pod-identity-agent", "kube-proxy", "vpc-cni")}
    for nodegroup in cluster.of_type("AWS::EKS::Nodegroup").values():
        assert set(nodegroup["DependsOn"]) == first
    for name, addon in made.values():
        expected = [] if name in first else ["SystemNodegroup"]
        assert addon.get("DependsOn", []) == expected


def test_the_node_role_can_join_and_pull_images(cluster):
    """The CNI's rights are not the node's, so that a pod cannot borrow them from it."""
    role = cluster.resources["NodeRole"]["Properties"]
    assert policies(role) == NODE_POLICIES
    assert "Policies" not in role
    for nodegroup in cluster.properties("AWS::EKS::Nodegroup"):
        assert nodegroup["NodeRole"] == {"Fn::GetAtt": ["NodeRole", "Arn"]}


def test_nodes_stand_in_private_subnets(cluster):
    """System nodes in every zone, GPU nodes in exactly one: EFA does not cross zones."""
    for name, nodegroup in cluster.of_type("AWS::EKS::Nodegroup").items():
        subnets = [subnet["Fn::ImportValue"] for subnet in nodegroup["Properties"]["Subnets"]]
        assert all("RefPrivateSubnet" in subnet for subnet in subnets)
        assert len(subnets) == (3 if name == "SystemNodegroup" else 1)


def test_pods_cannot_take_the_nodes_credentials(cluster):
    """A token, and an answer that dies one hop away from the node."""
    templates = cluster.properties("AWS::EC2::LaunchTemplate")
    assert len(templates) == 2
    for template in templates:
        assert template["LaunchTemplateData"]["MetadataOptions"] == {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        }


def test_root_volumes_are_encrypted_with_a_key_that_always_works(cluster):
    """A key of ours would have to admit the autoscaling service; without that no node starts."""
    for template in cluster.properties("AWS::EC2::LaunchTemplate"):
        [volume] = template["LaunchTemplateData"]["BlockDeviceMappings"]
        assert volume["Ebs"]["Encrypted"] is True
        assert volume["Ebs"]["VolumeType"] == "gp3"
        assert "KmsKeyId" not in volume["Ebs"]


def test_system_nodes_are_as_many_as_the_file_says(cluster, changed):
    """Always: no other number stands in the template that a deployment could send."""
    more = changed(lambda file: file.update(system_nodes={"count": 3})).template("Cluster")
    for template, count in ((cluster, 2), (more, 3)):
        system = template.resources["SystemNodegroup"]["Properties"]
        assert system["ScalingConfig"] == dict.fromkeys(
            ("MinSize", "DesiredSize", "MaxSize"), count
        )
        assert system["AmiType"] == "AL2023_x86_64_STANDARD"
        assert system["Labels"] == {"role": "system"}
        assert "Taints" not in system


@pytest.mark.parametrize("place", ["InstanceTypes", "DiskSize", "RemoteAccess"])
def test_node_groups_leave_to_the_launch_template_what_is_its_own(cluster, place):
    """EKS refuses a setting in both places."""
    for nodegroup in cluster.properties("AWS::EKS::Nodegroup"):
        assert place not in nodegroup
    for template in cluster.properties("AWS::EC2::LaunchTemplate"):
        assert "InstanceType" in template["LaunchTemplateData"]
        assert "IamInstanceProfile" not in template["LaunchTemplateData"]


def test_a_private_endpoint_is_open_to_the_vpc(cluster, changed):
    """EKS's own group lets in its members only, and nobody else could reach the API."""

    def private(file):
        file["access"] = {**file["access"], "public_cidrs": [], "private_route": "vpn"}

    template = changed(private).template("Cluster")
    access = template.resources["Cluster"]["Properties"]["ResourcesVpcConfig"]
    assert access["EndpointPublicAccess"] is False
    assert access["EndpointPrivateAccess"] is True
    rule = template.resources["EndpointFromVpc"]["Properties"]
    assert (rule["FromPort"], rule["ToPort"], rule["CidrIp"]) == (443, 443, "10.0.0.0/16")
    assert "EndpointFromVpc" not in cluster.resources
