"""The Cluster stack: who gets in, and what the file says of versions and nodes."""


def test_the_cluster_cannot_be_deleted_by_mistake(cluster, changed):
    """Until the file says so."""
    assert cluster.only("AWS::EKS::Cluster")[1]["DeletionProtection"] is True
    open_ = changed(lambda file: file["access"].update(deletion_protection=False))
    assert open_.template("Cluster").only("AWS::EKS::Cluster")[1]["DeletionProtection"] is False


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


def test_an_add_on_without_a_pin_takes_ekss_default(changed):
    """A Kubernetes version that this release knows no add-ons for still deploys."""
    newer = changed(lambda file: file.update(kubernetes_version="1.37")).template("Cluster")
    for addon in newer.properties("AWS::EKS::Addon"):
        assert "AddonVersion" not in addon
    for nodegroup in newer.properties("AWS::EKS::Nodegroup"):
        assert "ReleaseVersion" not in nodegroup
        assert nodegroup["Version"] == "1.37"


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
    # An empty list left in place would mean 0.0.0.0/0 to EKS.
    assert "PublicAccessCidrs" not in access
    rule = template.resources["EndpointFromVpc"]["Properties"]
    assert (rule["FromPort"], rule["ToPort"], rule["CidrIp"]) == (443, 443, "10.0.0.0/16")
    assert "EndpointFromVpc" not in cluster.resources
