"""The Network stack: subnets where the plan puts them, EFA's rules, and ways out."""

import itertools


def name_of(resource):
    """Return a resource's Name tag."""
    return next(tag["Value"] for tag in resource["Tags"] if tag["Key"] == "Name")


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


def test_no_subnet_gives_public_addresses(network):
    """Nodes with several interfaces get none anyway, and then never join."""
    subnets = network.properties("AWS::EC2::Subnet")
    assert [subnet["MapPublicIpOnLaunch"] for subnet in subnets] == [False] * 6


def test_subnets_say_which_load_balancers_they_take(network):
    """Controllers find subnets by these tags and by nothing else."""
    roles = {
        name_of(subnet).split("-")[1]: {
            tag["Key"] for tag in subnet["Tags"] if tag["Key"].startswith("kubernetes.io/")
        }
        for subnet in network.properties("AWS::EC2::Subnet")
    }
    assert roles == {
        "private": {"kubernetes.io/role/internal-elb"},
        "public": {"kubernetes.io/role/elb"},
    }


def test_a_further_zone_changes_nothing_that_exists(changed, network):
    """Only the S3 endpoint learns of one more route table."""
    zones = ["us-east-2a", "us-east-2b"]
    fewer = changed(lambda cluster: cluster.update(availability_zones=zones)).template("Network")
    changes = {
        name for name, body in fewer.resources.items() if network.resources.get(name) != body
    }
    assert changes == {"S3Endpoint"}


def test_nodes_reach_each_other_on_everything_both_ways(network):
    """EFA needs its own group as peer in both directions (EC2 User Guide, aws-ofi-nccl#663)."""
    group = {"Fn::GetAtt": ["NodeSecurityGroup", "GroupId"]}
    [ingress] = network.properties("AWS::EC2::SecurityGroupIngress")
    [egress] = network.properties("AWS::EC2::SecurityGroupEgress")
    for rule, peer in ((ingress, "SourceSecurityGroupId"), (egress, "DestinationSecurityGroupId")):
        assert rule["GroupId"] == group
        assert rule[peer] == group
        assert rule["IpProtocol"] == "-1"
        assert not {"FromPort", "ToPort", "CidrIp"} & set(rule)


def test_nodes_reach_out_and_nobody_reaches_in(network):
    """Images and data come from outside; nothing outside the group may call a node."""
    _, group = network.only("AWS::EC2::SecurityGroup")
    assert "SecurityGroupIngress" not in group
    [rule] = group["SecurityGroupEgress"]
    assert (rule["IpProtocol"], rule["CidrIp"]) == ("-1", "0.0.0.0/0")


def routes_to_nat(template):
    """Map the id of each private route to that of its NAT gateway."""
    return {
        name: body["Properties"]["NatGatewayId"]["Ref"]
        for name, body in template.of_type("AWS::EC2::Route").items()
        if "NatGatewayId" in body["Properties"]
    }


def test_one_nat_gateway_serves_every_zone(network):
    """The default: NAT is billed by the hour, and training needs little of it."""
    routes = routes_to_nat(network)
    assert len(routes) == 3
    assert set(routes.values()) == set(network.of_type("AWS::EC2::NatGateway"))
    assert len(network.of_type("AWS::EC2::NatGateway")) == 1


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


def test_every_private_subnet_reaches_s3_without_nat(network):
    """Image layers and checkpoints are what a NAT gateway's bill is made of."""
    _, endpoint = network.only("AWS::EC2::VPCEndpoint")
    assert (endpoint["VpcEndpointType"], endpoint["ServiceName"]) == (
        "Gateway",
        "com.amazonaws.us-east-2.s3",
    )
    private = {
        name for name, table in network.of_type("AWS::EC2::RouteTable").items() if "Private" in name
    }
    assert {table["Ref"] for table in endpoint["RouteTableIds"]} == private
    assert len(private) == 3


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


def test_flow_logs_record_the_whole_vpc(network):
    """Their role may write to that one group and nothing else."""
    _, flow_log = network.only("AWS::EC2::FlowLog")
    assert flow_log["ResourceId"] == {"Ref": "Vpc"}
    assert (flow_log["ResourceType"], flow_log["TrafficType"]) == ("VPC", "ALL")
    _, role = network.only("AWS::IAM::Role")
    group, _ = network.only("AWS::Logs::LogGroup")
    assert flow_log["LogGroupName"] == {"Ref": group}
    statements = list(
        itertools.chain.from_iterable(
            policy["PolicyDocument"]["Statement"] for policy in role["Policies"]
        )
    )
    assert [statement["Resource"] for statement in statements] == [[{"Fn::GetAtt": [group, "Arn"]}]]
    assert "ManagedPolicyArns" not in role


def test_addresses_wait_for_the_internet_gateway(network):
    """And are given back before it goes, or deleting the stack fails."""
    for kind in ("AWS::EC2::EIP", "AWS::EC2::NatGateway"):
        for resource in network.of_type(kind).values():
            assert "InternetGatewayAttachment" in resource["DependsOn"]
