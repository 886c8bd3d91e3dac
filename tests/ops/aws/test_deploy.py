"""`meks deploy` against a local AWS: what it makes, changes, parts, and refuses."""

import json
from dataclasses import replace

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.ops.cluster import build
from megatron_eks.ops.failure import Failure
from megatron_eks.project import load_project
from tests.annex.aws import stacks as small
from tests.annex.aws.running import fail_next
from tests.ops.aws.fakes import TODAY, said, tools
from tests.ops.aws.place import Place

LABELS = ("    max_nodes: 2", "    max_nodes: 4\n    labels: {team: nlp}")
TAGS = ("schema_version: 1", "schema_version: 1\ntags: {team: nlp}")
RELEASE = ("    max_nodes: 2", '    max_nodes: 2\n    ami_release: "1.36.5-20261101"')


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where the module's project lies."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture
def place(folder, aws):
    """Return a cluster that is deployed with the file as it was at first, and has no nodes."""
    place = Place(folder, aws)
    if not (folder / "outputs.json").exists():
        assert place.deploy() == 0
    else:
        if place.group()["scalingConfig"]["desiredSize"]:
            place.scale(0)
        place.deploy("Cluster")
    return place


def test_a_new_cluster_is_asked_for_once(folder, aws):
    """Account, stacks and price are shown first; no answer makes nothing."""
    place = Place(folder, aws)
    assert place.deploy(yes=False, answers="n\n") == 1
    assert said(place.console).splitlines()[-2:] == [
        "techpulse then costs 1.38 USD an hour, and no GPU node starts",
        "Go on? [y/N] nothing was made",
    ]
    with pytest.raises(Failure, match="nobody is there to answer: Go on"):
        place.deploy(yes=False)


def test_all_stacks_are_made_and_their_outputs_written(place):
    """In the order in which they need each other."""
    values = json.loads((place.folder / "outputs.json").read_text())
    assert list(values) == [
        f"techpulse-{part}" for part in ("Network", "Storage", "Images", "Cluster")
    ]
    assert values["techpulse-Storage"]["LustreId"].startswith("fs-")
    assert not any(key.startswith("Exports") for key in values["techpulse-Network"])
    assert place.group()["scalingConfig"]["desiredSize"] == 0


def test_a_stack_that_was_switched_off_is_told_until_it_is_gone(place):
    """A scraper and a key are billed on; every command that reads the files says so."""
    name, client = "techpulse-Observability", place.aws.client("cloudformation")
    topic = {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": "off"}}
    told = {key: {"Value": "https://x"} for key in ("AlarmTopicArn", "PrometheusUrl")}
    small.Stacks(client).create(name, {"Topic": topic}, Outputs=told)
    assert place.deploy("Cluster", yes=False) == 0
    expected = f"{name} is still there, and observability is off: 30 USD a month"
    assert f"outputs.json:1 observability.enabled: {expected}" in said(place.console)
    (found,) = (
        each
        for each in load_project(place.file, TODAY.date(), makes=False).warnings
        if each.code == "MEKS-0898"
    )
    assert expected in found.problem
    assert f"--region us-east-2 --stack-name {name}" in found.remedy
    client.delete_stack(StackName=name)
    client.get_waiter("stack_delete_complete").wait(StackName=name)
    assert place.deploy("Cluster", yes=False) == 0
    assert "MEKS-0898" not in str(load_project(place.file, TODAY.date(), makes=False).warnings)


def test_a_source_that_is_gone_fails_a_build(place):
    """The bucket of the CDK forgets what is old; the remedy is to upload it again."""
    assert build.run(["fsdp"], tools(place.file, place.aws, place.console)) == 1
    last = said(place.console).splitlines()[-1]
    assert last.startswith("MEKS-0754 build 1 of fsdp: DOWNLOAD_SOURCE ")
    assert last.endswith(" - the source is gone from the CDK's bucket: run meks deploy Images")


def test_nothing_changed_is_nothing_asked(place):
    """A second run needs no answer."""
    assert place.deploy("Cluster", yes=False) == 0
    assert "techpulse-Cluster: no changes" in said(place.console)


def test_running_nodes_are_left_alone(place):
    """The same two stay, whatever changes; another AMI release comes when they are gone."""
    place.scale(2)
    before, nodes = place.group(), place.nodes()
    place.write(("    max_nodes: 2", "    max_nodes: 4"))
    assert place.deploy("Cluster") == 0
    place.write(LABELS)
    assert place.deploy("Cluster") == 0
    after = place.group()
    assert after["labels"] == {"megatron-eks/pool": "p4d", "team": "nlp"}
    assert after["scalingConfig"] == before["scalingConfig"]
    assert after["launchTemplate"] == before["launchTemplate"]
    place.write(RELEASE)
    with pytest.raises(Failure) as caught:
        place.deploy("Cluster")
    assert str(caught.value) == (
        "MEKS-0751 p4d has 2 nodes, and this ends them (ReleaseVersion) - let the jobs end, then "
        "run: meks scale p4d 0; meks deploy; meks scale p4d 2"
    )
    assert caught.value.code == 4
    assert (len(nodes), place.nodes()) == (2, nodes)
    cloudformation = place.aws.client("cloudformation")
    sets = cloudformation.list_change_sets(StackName="techpulse-Cluster")["Summaries"]
    assert [each for each in sets if each["ExecutionStatus"] == "AVAILABLE"] == []
    place.scale(0)
    place.write(LABELS, TAGS)
    assert place.deploy("Cluster") == 0
    assert place.group()["launchTemplate"]["version"] != before["launchTemplate"]["version"]


def test_what_aws_refuses_together_goes_in_steps(place):
    """A launch template, a version and labels are three updates."""
    place.write(
        (
            "    max_nodes: 2",
            (
                '    max_nodes: 2\n    ami_release: "1.36.5-20261101"\n'
                "    root_volume_gib: 600\n    labels: {team: vision}"
            ),
        )
    )
    assert place.deploy("Cluster") == 0
    text = said(place.console)
    assert "techpulse-Cluster, step 3 of 3: comparing" in text
    assert text.count("techpulse-Cluster: UPDATE_COMPLETE") == 3
    assert place.group()["labels"]["team"] == "vision"
    assert place.group()["releaseVersion"] == "1.36.5-20261101"


def test_a_change_can_be_declined(place):
    """It is shown, and then nothing of it is left."""
    place.write(LABELS)
    assert place.deploy("Cluster", yes=False, answers="n\n") == 1
    assert "1 to change" in said(place.console)
    assert said(place.console).endswith("nothing was changed\n")
    assert "team" not in place.group()["labels"]


def test_nodes_that_were_taken_away_are_a_failure(place, monkeypatch):
    """CloudFormation is not trusted with sizes: somebody may have changed the template by hand."""
    place.scale(2)
    place.write(LABELS)
    prepare = place.cdk.prepare

    def with_a_stale_size(stack, change_set, *, import_existing):
        template = place.cdk.template(stack)
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::EKS::Nodegroup" and "Taints" in resource["Properties"]:
                resource["Properties"]["ScalingConfig"]["MaxSize"] = 449
        place.cdk.use(stack, template)
        prepare(stack, change_set, import_existing=import_existing)

    monkeypatch.setattr(type(place.cdk), "prepare", staticmethod(with_a_stale_size))
    with pytest.raises(Failure) as caught:
        place.deploy("Cluster")
    assert str(caught.value) == (
        "MEKS-0752 p4d wanted 2 nodes before and 0 now - run: meks scale p4d 2"
    )


def test_a_failure_is_told_in_the_resources_words(place, server):
    """With what to do; and the stack is as it was."""
    fail_next(
        server, "AWS::EKS::Nodegroup", "not authorized to perform: ec2:RunInstances", "UPDATE"
    )
    place.write(LABELS)
    with pytest.raises(Failure) as caught:
        place.deploy("Cluster")
    text = str(caught.value)
    assert text.startswith("MEKS-0750 techpulse-Cluster: UPDATE_ROLLBACK_COMPLETE: ")
    assert "not authorized to perform: ec2:RunInstances" in text
    assert text.endswith(" - whoever deploys needs the permission that it names")


def test_a_stack_of_no_name_is_refused(place):
    """The names that there are are told."""
    with pytest.raises(Failure) as caught:
        place.deploy("Clutser")
    assert caught.value.code == 2
    assert "known: Network, Storage, Images, Cluster" in str(caught.value)


def test_ctrl_c_says_how_to_come_back(place, monkeypatch):
    """AWS goes on with what it was told; 130 is interrupted."""
    place.write(LABELS)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Stacks, "execute", interrupted)
    assert place.deploy("Cluster") == 130
    text = said(place.console)
    assert "AWS goes on with techpulse-Cluster. `meks deploy` waits for it" in text
    assert "cancel-update-stack --region us-east-2 --stack-name techpulse-Cluster" in text


def test_of_two_at_once_the_second_compares_anew(place, monkeypatch):
    """What it has compared with is no more; a further run finds what is left to do."""
    compare, colleague = Stacks.changes, iter([place])

    def changes(self, *words):
        found = compare(self, *words)
        for other in colleague:
            other.write(LABELS)
            assert other.deploy("Cluster") == 0
        return found

    monkeypatch.setattr(Stacks, "changes", changes)
    place.write(LABELS, TAGS)
    with pytest.raises(Failure) as caught:
        place.deploy("Cluster")
    assert str(caught.value).startswith("MEKS-0750 techpulse-Cluster: somebody else changes it")
    assert place.group()["labels"]["team"] == "nlp"
    place.write(LABELS, TAGS)
    assert place.deploy("Cluster") == 0
    assert "change" in said(place.console)
    assert place.deploy("Cluster") == 0
    assert "techpulse-Cluster: no changes" in said(place.console)


def test_while_another_is_carried_out_none_is_prepared(place, monkeypatch):
    """CloudFormation refuses it, and the message says why."""
    place.write(LABELS)
    find, begun = Stacks.find, []

    def refused(*_, **__):
        begun.append(True)
        raise Failure(Code.CDK_FAILED, "is in UPDATE_IN_PROGRESS state and can not be updated", "")

    def found(self, name):
        stack = find(self, name)
        return replace(stack, status="UPDATE_IN_PROGRESS") if begun and stack else stack

    monkeypatch.setattr(place.cdk, "prepare", refused)
    monkeypatch.setattr(Stacks, "find", found)
    with pytest.raises(Failure, match="somebody else changes it at the same time"):
        place.deploy("Cluster")


def test_a_creation_that_failed_is_asked_for_again(tmp_path, aws, server):
    """What is left of it is no stack, and the next try needs its own answer."""
    place = Place(tmp_path, aws)
    named = (
        ("name: techpulse", "name: again"),
        ("schema_version: 1", "schema_version: 1\nimages: {prefix: again-}"),
    )
    place.write(*named)
    fail_next(server, "AWS::KMS::Key", "no such role", "CREATE")
    with pytest.raises(Failure, match=r"ROLLBACK_COMPLETE: .*no such role"):
        place.deploy("Images")
    assert place.deploy("Images", yes=False, answers="n\n") == 1
    assert "to make in account 000000000000, us-east-2: again-Images" in said(place.console)
    assert place.deploy("Images") == 0
