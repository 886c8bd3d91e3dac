"""What holds for every object and file: valid, marked while a preview, and apart by job."""

import cdk8s
import pytest

from megatron_eks.charts import composition
from tests.charts import rendered
from tests.charts.rendered import cluster, deployed, outputs, training_job
from tests.charts.validation import assert_valid


def test_the_api_server_would_accept_every_object(everything):
    """Types, unknown fields and list keys, by the schemas of the cluster's version."""
    for manifest in everything:
        assert_valid(manifest)


@pytest.mark.parametrize("outs", [outputs(), deployed()], ids=["preview", "deployed"])
def test_previews_are_marked_and_nothing_else_is(outs):
    """An object that holds a placeholder says so; an object that holds none does not."""
    plans = rendered.shipped_jobs(*(["null"] if outs.lustre.preview else []))
    for manifest in [*rendered.platform(outs=outs), *rendered.jobs(*plans)]:
        holds = "preview.invalid" in str(manifest) or "fs-preview" in str(manifest)
        annotations = manifest["metadata"].get("annotations", {})
        assert (annotations.get("megatron-eks/preview") == "true") == holds


def test_each_job_is_a_file_of_its_own(tmp_path):
    """So that one can be submitted without the others, and none comes with the platform."""
    app = cdk8s.App(outdir=str(tmp_path), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)
    composition.build_jobs(app, cluster(), [training_job()])
    app.synth()
    assert [file.name for file in tmp_path.iterdir()] == ["megatron-cpt-techpulse.k8s.yaml"]
