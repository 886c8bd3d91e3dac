"""The Network stack of other zones and ways out than the default cluster's."""


def test_a_further_zone_changes_nothing_that_exists(changed, network):
    """Only the S3 endpoint learns of one more route table."""
    zones = ["us-east-2a", "us-east-2b"]
    fewer = changed(lambda cluster: cluster.update(availability_zones=zones)).template("Network")
    changes = {
        name for name, body in fewer.resources.items() if network.resources.get(name) != body
    }
    assert changes == {"S3Endpoint"}


def test_without_nat_there_is_no_way_out_and_no_address_to_pay(changed):
    """A private cluster reaches AWS through endpoints alone."""
    template = changed(lambda cluster: cluster.update(network={"nat_gateways": 0})).template(
        "Network"
    )
    assert template.of_type("AWS::EC2::NatGateway") == {}
    assert template.of_type("AWS::EC2::EIP") == {}
    assert len(template.of_type("AWS::EC2::Route")) == 1
