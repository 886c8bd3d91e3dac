"""The Cluster stack: who gets in, what is recorded, and in which order nodes come up."""

import json


def policies(role):
    """Return the names of the managed policies of a role."""
    return {arn["Fn::Join"][1][-1].rpartition("/")[2] for arn in role.get("ManagedPolicyArns", [])}


def add_ons(template):
    """Return logical id and body of each add-on by its name."""
    return {
        body["Properties"]["AddonName"]: (name, body)
        for name, body in template.of_type("AWS::EKS::Addon").items()
    }


def test_without_addresses_the_endpoint_is_private(changed):
    """An empty list left in place would mean 0.0.0.0/0 to EKS."""
    closed = changed(lambda cluster: cluster["access"].update(public_cidrs=[], private_route="vpn"))
    _, properties = closed.template("Cluster").only("AWS::EKS::Cluster")
    network = properties["ResourcesVpcConfig"]
    assert network["EndpointPrivateAccess"] is True
    assert network["EndpointPublicAccess"] is False
    assert "PublicAccessCidrs" not in network


def test_the_cluster_cannot_be_deleted_by_mistake(cluster, changed):
    """Until the file says so."""
    assert cluster.only("AWS::EKS::Cluster")[1]["DeletionProtection"] is True
    open_ = changed(lambda file: file["access"].update(deletion_protection=False))
    assert open_.template("Cluster").only("AWS::EKS::Cluster")[1]["DeletionProtection"] is False


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
        assert properties.get("AddonVersion") == addon.version
        assert properties["ResolveConflicts"] == "OVERWRITE"
        configuration = json.loads(properties.get("ConfigurationValues", "{}"))
        assert configuration == dict(addon.configuration)


def test_an_add_on_without_a_pin_takes_ekss_default(changed):
    """A Kubernetes version that this release knows no add-ons for still deploys."""
    newer = changed(lambda file: file.update(kubernetes_version="1.37")).template("Cluster")
    for _, addon in add_ons(newer).values():
        assert "AddonVersion" not in addon["Properties"]
    for nodegroup in newer.properties("AWS::EKS::Nodegroup"):
        assert "ReleaseVersion" not in nodegroup
        assert nodegroup["Version"] == "1.37"


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
