"""A GPU pool: interfaces, user data, and a size that no deployment ever touches."""

import pytest
from botocore.session import get_session


def pool(template, name):
    """Return node group and launch template of a pool."""
    [nodegroup] = [
        group
        for group in template.properties("AWS::EKS::Nodegroup")
        if group["Labels"].get("megatron-eks/pool") == name
    ]
    launch = template.resources[nodegroup["LaunchTemplate"]["Id"]["Ref"]]["Properties"]
    return nodegroup, launch["LaunchTemplateData"]


def first_pool(edit):
    """Return a change of the first pool in the file."""
    return lambda cluster: cluster["gpu_pools"][0].update(edit)


@pytest.mark.parametrize(
    "edit",
    [
        {"max_nodes": 64},
        {"labels": {"team": "nlp"}},
        {"ami_release": "1.36.4-20260923"},
        {"root_volume_gib": 800},
        {"placement_group": False},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_no_change_of_a_pool_resizes_anything(cluster, changed, edit):
    """A running pool must not go to zero because somebody relabelled it."""
    before, after = (
        {
            name: group["Properties"]["ScalingConfig"]
            for name, group in template.of_type("AWS::EKS::Nodegroup").items()
        }
        for template in (cluster, changed(first_pool(edit)).template("Cluster"))
    )
    assert before == after


def test_max_nodes_changes_nothing_but_how_many_are_repaired(assembly, changed):
    """The limit is held where capacity is asked for; repairs stop above a tenth, or two."""
    raised = changed(first_pool({"max_nodes": 29}))
    for part, template in assembly.templates().items():
        assert raised.template(part) == template
    repair = pool(changed(first_pool({"max_nodes": 64})).template("Cluster"), "p4d")[0][
        "NodeRepairConfig"
    ]
    assert repair["MaxUnhealthyNodeThresholdCount"] == 6
    assert repair["MaxParallelNodesRepairedCount"] == 6


def test_a_fatal_fault_of_a_gpu_is_not_waited_on(cluster):
    """Each override has all four fields, in the words of the API."""
    overrides = pool(cluster, "p4d")[0]["NodeRepairConfig"]["NodeRepairConfigOverrides"]
    model = get_session().get_service_model("eks")
    enums = model.shape_for("NodeRepairConfigOverrides").members
    for each in overrides:
        assert {name[:1].lower() + name[1:] for name in each} == set(enums)
        assert each["RepairAction"] in enums["repairAction"].enum
        assert each["MinRepairWaitTimeMins"] == 1
    reasons = {each["NodeUnhealthyReason"]: each["RepairAction"] for each in overrides}
    assert len(reasons) == len(overrides)
    assert reasons["NvidiaXID79Error"] == "Replace"
    # Faults of programs, which end with them.
    assert not reasons.keys() & {f"NvidiaXID{code}Error" for code in (13, 31, 94)}


def test_labels_of_the_file_are_labels_of_the_nodes(changed):
    """Beside the project's own."""
    template = changed(first_pool({"labels": {"team": "nlp"}})).template("Cluster")
    nodegroup, _ = pool(template, "p4d")
    assert nodegroup["Labels"] == {"megatron-eks/pool": "p4d", "team": "nlp"}


def test_the_image_is_the_pinned_one_unless_the_file_says_otherwise(assembly, cluster, changed):
    """A release of its own accord would change the driver under a running project."""
    nodegroup, _ = pool(cluster, "p4d")
    assert nodegroup["AmiType"] == "AL2023_x86_64_NVIDIA"
    assert nodegroup["ReleaseVersion"] == assembly.plan.pool("p4d").ami_release
    older = changed(first_pool({"ami_release": "1.36.4-20260923"})).template("Cluster")
    assert pool(older, "p4d")[0]["ReleaseVersion"] == "1.36.4-20260923"


def test_a_pool_stands_in_its_zone_alone(cluster, changed):
    """Whatever zones the cluster has."""
    moved = changed(first_pool({"availability_zone": "us-east-2c"})).template("Cluster")
    for template, zone in ((cluster, "useast2b"), (moved, "useast2c")):
        [subnet] = pool(template, "p4d")[0]["Subnets"]
        assert f"PrivateSubnet{zone}" in subnet["Fn::ImportValue"]


def test_nodes_stand_close_together_where_the_plan_says_so(cluster, changed):
    """One rack for the on-demand default; none where the file forbids it."""
    group, placement = cluster.only("AWS::EC2::PlacementGroup")
    assert placement == {"Strategy": "cluster"}
    assert pool(cluster, "p4d")[1]["Placement"] == {"GroupName": {"Ref": group}}
    apart = changed(first_pool({"placement_group": False})).template("Cluster")
    assert apart.of_type("AWS::EC2::PlacementGroup") == {}
    assert "Placement" not in pool(apart, "p4d")[1]


def test_a_group_of_reservations_is_named_by_its_arn(changed):
    """EC2 takes either the one id or the group's ARN."""
    arn = "arn:aws:resource-groups:us-east-2:111122223333:group/gpu"
    capacity = {"type": "reservation", "id": arn}
    template = changed(first_pool({"capacity": capacity})).template("Cluster")
    specification = pool(template, "p4d")[1]["CapacityReservationSpecification"]
    target = specification["CapacityReservationTarget"]
    assert target == {"CapacityReservationResourceGroupArn": arn}


def test_a_tag_makes_no_other_placement_group(changed):
    """For CloudFormation another tag is another group, and its nodes would go with it."""
    tagged = changed(lambda cluster: cluster.update(tags={"team": "nlp"})).template("Cluster")
    assert tagged.only("AWS::EC2::PlacementGroup")[1] == {"Strategy": "cluster"}


def test_another_pool_leaves_the_first_one_alone(cluster, changed):
    """Also one whose name differs by a dash only, which logical ids do not hold."""

    def add(file):
        second = dict(file["gpu_pools"][0], name="p4-d", availability_zone="us-east-2a")
        file["gpu_pools"].insert(0, second)

    template = changed(add).template("Cluster")
    for name, body in cluster.resources.items():
        assert template.resources[name] == body
    assert pool(template, "p4-d")[0] != pool(template, "p4d")[0]
    assert len(template.of_type("AWS::EKS::Nodegroup")) == 3
