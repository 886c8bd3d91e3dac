"""What a deployment would do to nodes and data is shown, and refused where it costs a job."""

import boto3
import pytest
from botocore.stub import Stubber

from megatron_eks.ops.aws.stacks import Change
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.ops.cluster.splitting import refuse_data_loss, refuse_node_loss, show_changes
from megatron_eks.ops.failure import Failure
from tests.ops.aws.fakes import NOBODY, Clients, console, said
from tests.ops.aws.templates import cluster_template

OLD = cluster_template()


def pool_with(nodes):
    """Return node groups of which EKS says so many are wanted."""
    eks = boto3.client("eks", region_name="us-east-2", **NOBODY)
    stub = Stubber(eks)
    group = {"nodegroupName": "p4d", "status": "ACTIVE", "scalingConfig": {"desiredSize": nodes}}
    stub.add_response(
        "describe_nodegroup",
        {"nodegroup": group},
        {"clusterName": "techpulse", "nodegroupName": "p4d"},
    )
    stub.activate()
    ec2 = boto3.client("ec2", region_name="us-east-2", **NOBODY)
    stub = Stubber(ec2)
    instance = {"InstanceId": "i-1"}
    stub.add_response("describe_instances", {"Reservations": [{"Instances": [instance] * nodes}]})
    stub.activate()
    return NodeGroups("techpulse", Clients(eks=eks, ec2=ec2))


def change(verb, kind, name="Thing", *properties):
    """Return a change as a change set has it."""
    return Change(verb, name, kind, properties)


def test_an_ami_release_is_refused_while_nodes_run():
    """It ends them one after another; the commands to run first are in the message."""
    with pytest.raises(Failure) as caught:
        refuse_node_loss(OLD, cluster_template(ReleaseVersion="1.35.8-2"), [], pool_with(2))
    assert str(caught.value) == (
        "MEKS-0751 p4d has 2 nodes, and this ends them (ReleaseVersion) - let the jobs end, then "
        "run: meks scale p4d 0; meks deploy; meks scale p4d 2"
    )
    assert caught.value.code == 4


def test_an_empty_pool_takes_any_change():
    """Nobody loses anything."""
    new = cluster_template(ReleaseVersion="2", disk=800)
    replaced = change("replace", "AWS::EKS::Nodegroup", "Group")
    refuse_node_loss(OLD, new, [replaced], pool_with(0))


def test_labels_go_to_running_nodes():
    """No node ends by that."""
    refuse_node_loss(OLD, cluster_template(Labels={"a": "b"}), [], pool_with(2))


def test_system_nodes_hold_up_nothing():
    """They have no name, and are replaced one by one."""
    old, new = cluster_template(), cluster_template(tags="b")
    for template in (old, new):
        del template["Resources"]["Group"]["Properties"]["NodegroupName"]
    refuse_node_loss(old, new, [], pool_with(2))


@pytest.mark.parametrize("verb", ["replace", "remove"])
def test_a_node_group_that_goes_is_refused_while_it_has_nodes(verb):
    """What templates do not show, the change set does."""
    gone = change(verb, "AWS::EKS::Nodegroup", "Group")
    with pytest.raises(Failure) as caught:
        refuse_node_loss(OLD, OLD, [gone], pool_with(1))
    assert f"p4d has 1 node, and this ends them (node group: {verb})" in str(caught.value)


def test_what_a_launch_template_names_must_not_be_replaced_either():
    """Another rack is another launch template, which no comparison of templates shows."""
    named = cluster_template()
    data = named["Resources"]["Template"]["Properties"]["LaunchTemplateData"]
    data["Placement"] = {"GroupName": {"Ref": "Rack"}}
    kept, replaced = (change(x, "AWS::EC2::PlacementGroup", "Rack") for x in ("change", "replace"))
    refuse_node_loss(named, named, [kept], pool_with(2))
    with pytest.raises(Failure, match=r"this ends them \(launch template: Placement\)"):
        refuse_node_loss(named, named, [replaced], pool_with(2))


def test_data_that_would_be_lost_is_refused():
    """A new file system is empty, and jobs look for their data there."""
    changes = [change("replace", "AWS::FSx::FileSystem", "Lustre", "StorageType")]
    with pytest.raises(Failure) as caught:
        refuse_data_loss("techpulse-Storage", changes, allowed=False)
    assert str(caught.value).startswith(
        "MEKS-0753 techpulse-Storage: jobs would no longer find their data: replace Lustre "
        "(AWS::FSx::FileSystem) - "
    )
    refuse_data_loss("techpulse-Storage", changes, allowed=True)


def test_a_larger_file_system_is_no_loss():
    """It grows in place."""
    changes = [change("change", "AWS::FSx::FileSystem", "Lustre", "StorageCapacity")]
    refuse_data_loss("techpulse-Storage", changes, allowed=False)


def test_changes_are_listed_with_the_most_drastic_first():
    """In lines that fit a terminal of 80 columns."""
    shown = console()
    changes = [
        change("add", "AWS::EKS::Addon", "Addon"),
        change("change", "AWS::EKS::Nodegroup", "Group", "Labels", "Tags"),
        change("remove", "AWS::EKS::AccessEntry", "Entry"),
    ]
    show_changes("techpulse-Cluster", changes, shown)
    assert said(shown) == (
        "techpulse-Cluster: 1 to remove, 1 to change, 1 to add\n"
        "  remove      Entry (EKS::AccessEntry)\n"
        "  change      Group (EKS::Nodegroup)\n"
        "                Labels, Tags\n"
        "  add         Addon (EKS::Addon)\n"
    )


def test_a_new_stack_is_counted_and_not_listed():
    """Thirty lines of what everybody expects hide the one that matters."""
    shown = console()
    changes = [change("add", "AWS::EC2::Subnet", f"Subnet{number}") for number in range(30)]
    show_changes("techpulse-Network", changes, shown)
    assert said(shown) == "techpulse-Network: 30 to add\n"
