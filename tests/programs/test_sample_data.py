"""The data set of the sample training, as our start-up checks read indexed data sets."""

from megatron_eks.plan.jobs.validation import plan_validation
from megatron_eks.programs.prepare.indexed_data import read_data_set
from tests.charts.rendered import cluster, outputs


def test_it_is_what_megatrons_index_says(tmp_path):
    """Sizes and documents agree, so that the check of a pool never fails by its own data."""
    jobs = plan_validation(cluster(), outputs().images)
    (sample,) = [job for job in jobs if job.name == "sample-training-p4d"]
    for name in ("sample.bin", "sample.idx"):
        content = sample.files[name]
        assert isinstance(content, bytes)
        (tmp_path / name).write_bytes(content)
    found = read_data_set(str(tmp_path / "sample"))
    assert (found.documents, found.tokens) == (64, 64 * 65)
