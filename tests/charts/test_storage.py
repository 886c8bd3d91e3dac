"""The shared file system: what is a preview, and when its directories are made anew."""

import json
from dataclasses import replace

import pytest

from megatron_eks.plan.cluster.storage import SharedDirectories
from tests.charts import rendered
from tests.charts.rendered import TAGGED, deployed, only, other_platform, outputs


@pytest.mark.parametrize(
    ("outs", "marked"),
    [
        (outputs(), {"PersistentVolume"}),
        (outputs(json.dumps(TAGGED)), set()),
        (deployed(), set()),
    ],
    ids=["no deployment", "tags only", "digests"],
)
def test_only_volumes_of_placeholders_are_previews(outs, marked):
    """A claim names its volume, not the file system, so it is never a preview."""
    manifests = rendered.platform(outs=outs)
    previews = [
        manifest
        for manifest in manifests
        if manifest["metadata"].get("annotations", {}).get("megatron-eks/preview") == "true"
    ]
    assert {manifest["kind"] for manifest in previews} == marked
    assert len(previews) == 2 * len(marked)


def test_the_set_up_job_is_renamed_with_its_content():
    """A Job's template cannot change, and a new file system has no directories yet."""
    other = replace(
        deployed(), file_systems=(replace(deployed().lustre, id="fs-11111111111111111"),)
    )
    directories = SharedDirectories(("/shared",), (), ())
    variants = [
        rendered.platform(),
        rendered.platform(other_platform(shared_directories=directories)),
        rendered.platform(other_platform(pod_uid=10002)),
        rendered.platform(outs=other),
    ]
    names = {only(manifests, "Job")["metadata"]["name"] for manifests in variants}
    assert len(names) == len(variants)
    assert only(rendered.platform(), "Job")["metadata"]["name"] in names
