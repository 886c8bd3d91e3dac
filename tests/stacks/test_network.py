"""The Network stack: subnets where the plan puts them, EFA's rules, and ways out."""


def test_subnets_are_those_of_the_plan(assembly, network):
    """Explicit addresses: a further zone must not move the nodes of the others."""
    made = {
        (subnet["AvailabilityZone"], subnet["CidrBlock"])
        for subnet in network.properties("AWS::EC2::Subnet")
    }
    planned = {
        (subnet.zone, cidr)
        for subnet in assembly.plan.network.subnets
        for cidr in (subnet.private_cidr, subnet.public_cidr)
    }
    assert made == planned


def test_a_further_zone_changes_nothing_that_exists(changed, network):
    """Only the S3 endpoint learns of one more route table."""
    zones = ["us-east-2a", "us-east-2b"]
    fewer = changed(lambda cluster: cluster.update(availability_zones=zones)).template("Network")
    changes = {
        name for name, body in fewer.resources.items() if network.resources.get(name) != body
    }
    assert changes == {"S3Endpoint"}


def routes_to_nat(template):
    """Map the id of each private route to that of its NAT gateway."""
    return {
        name: body["Properties"]["NatGatewayId"]["Ref"]
        for name, body in template.of_type("AWS::EC2::Route").items()
        if "NatGatewayId" in body["Properties"]
    }


def test_each_zone_may_have_its_own_nat_gateway(changed):
    """Then the loss of a zone takes away no other zone's way out."""
    template = changed(
        lambda cluster: cluster.update(network={"nat_gateways": "per_zone"})
    ).template("Network")
    routes = routes_to_nat(template)
    assert len(set(routes.values())) == 3
    for route, gateway in routes.items():
        assert route.removeprefix("PrivateDefaultRoute") == gateway.removeprefix("Nat")


def test_without_nat_there_is_no_way_out_and_no_address_to_pay(changed):
    """A private cluster reaches AWS through endpoints alone."""
    template = changed(lambda cluster: cluster.update(network={"nat_gateways": 0})).template(
        "Network"
    )
    assert routes_to_nat(template) == {}
    assert template.of_type("AWS::EC2::NatGateway") == {}
    assert template.of_type("AWS::EC2::EIP") == {}
    assert len(template.of_type("AWS::EC2::Route")) == 1


def test_interface_endpoints_stand_in_every_zone_and_take_https_from_the_vpc(changed):
    """A cluster without NAT depends on them; a list without overlap is what names allow."""
    services = ["ecr.api", "ecr.dkr", "sts"]
    template = changed(
        lambda cluster: cluster.update(network={"interface_endpoints": services})
    ).template("Network")
    endpoints = [
        endpoint
        for endpoint in template.properties("AWS::EC2::VPCEndpoint")
        if endpoint["VpcEndpointType"] == "Interface"
    ]
    names = {endpoint["ServiceName"] for endpoint in endpoints}
    assert names == {f"com.amazonaws.us-east-2.{service}" for service in services}
    private = {name for name in template.of_type("AWS::EC2::Subnet") if "Private" in name}
    for endpoint in endpoints:
        assert endpoint["PrivateDnsEnabled"] is True
        assert {subnet["Ref"] for subnet in endpoint["SubnetIds"]} == private
        assert endpoint["SecurityGroupIds"] == [
            {"Fn::GetAtt": ["EndpointSecurityGroup", "GroupId"]}
        ]
    group = template.of_type("AWS::EC2::SecurityGroup")["EndpointSecurityGroup"]["Properties"]
    [rule] = group["SecurityGroupIngress"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert rule["CidrIp"] == "10.0.0.0/16"
