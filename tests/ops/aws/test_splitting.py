"""Updates of a node group that AWS refuses together are deployed one after another."""

import copy

from megatron_eks.ops.cluster.splitting import steps, updates
from tests.ops.aws.templates import cluster_template

OLD = cluster_template()


def group(template):
    """Return the node group's properties."""
    return template["Resources"]["Group"]["Properties"]


def disk(template):
    """Return what the launch template says of volumes."""
    data = template["Resources"]["Template"]["Properties"]["LaunchTemplateData"]
    return data["BlockDeviceMappings"]


def test_a_change_of_labels_alone_is_one_step():
    """Labels go to running nodes, and nothing is split."""
    new = cluster_template(Labels={"a": "b"})
    assert updates(OLD, new) == {"Group": [{"Labels"}]}
    assert steps(OLD, new) == [new]


def test_nothing_changed_is_nothing_to_split():
    """The same template is its own only step."""
    assert updates(OLD, copy.deepcopy(OLD)) == {}
    assert steps(OLD, OLD) == [OLD]


def test_version_and_labels_go_one_after_the_other():
    """EKS takes a version or a configuration, not both in one update."""
    new = cluster_template(ReleaseVersion="1.35.8-2", Labels={"a": "b"})
    first, second = steps(OLD, new)
    assert group(first)["ReleaseVersion"] == "1.35.8-2"
    assert group(first)["Labels"] == {"megatron-eks/pool": "p4d"}
    assert second == new


def test_launch_template_version_and_labels_are_three_steps():
    """The launch template first: it must never refer to what a later step brings."""
    new = cluster_template(disk=800, Version="1.36", ReleaseVersion="1.36.1-1", Labels={})
    first, second, third = steps(OLD, new)
    assert [disk(each) for each in (first, second, third)] == [[800], [800], [800]]
    assert [group(each)["Version"] for each in (first, second, third)] == ["1.35", "1.36", "1.36"]
    assert group(second)["Labels"] == {"megatron-eks/pool": "p4d"}
    assert third == new


def test_what_a_step_holds_back_may_be_new_or_gone():
    """A property that the old template lacks is left out until its step."""
    new = cluster_template(ReleaseVersion="2", Taints=[{"Key": "a"}])
    del new["Resources"]["Group"]["Properties"]["Labels"]
    first, _ = steps(OLD, new)
    assert "Taints" not in group(first)
    assert group(first)["Labels"] == {"megatron-eks/pool": "p4d"}


def test_a_new_node_group_is_never_split():
    """What does not exist is made as a whole."""
    new = cluster_template(ReleaseVersion="2", Labels={})
    old = copy.deepcopy(OLD)
    del old["Resources"]["Group"]
    assert steps(old, new) == [new]
