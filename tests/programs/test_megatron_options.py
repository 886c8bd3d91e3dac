"""What a job file may add, Megatron takes: each of its options, with several values of its kind."""

from collections.abc import Iterator

import pytest

from megatron_eks.catalog.megatron_options import FLAGS, NUMBERS, OPTIONS, WHOLE, WORDS
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.jobs.table import check_job
from megatron_eks.project import ROOT
from tests.programs.test_megatron_parser import answers, asked, megatron_jobs

pytestmark = pytest.mark.programs

CLUSTER, JOB = ROOT / "cluster.yaml", ROOT / "jobs" / "megatron-cpt-techpulse.yaml"

# What these speak of is in the images, or a file that somebody has: none of it is here.
_NOT_HERE = {
    "--enable-msc": "multistorageclient package is not installed",
    "--heterogeneous-layers-config-encoded-json x": "JSONDecodeError",
    "--heterogeneous-layers-config-path x": "No such file",
    "--log-max-attention-logit": "TE >= 2.9.0",
    "--moe-permute-fusion": "install TE >= 2.1.0",
    "--overlap-dispatch-backward-with-experts-wgrad": "TE version >= 2.3.0",
    "--qk-clip": "TE >= 2.9.0",
    **{f"--symmetric-ar-type {each}": "TE version 2.3" for each in WORDS["--symmetric-ar-type"]},
    "--te-precision-config-file x": "No such file",
}


def _values(option: str) -> tuple[str, ...]:
    if option in FLAGS:
        return ("",)
    if option in WORDS:
        return WORDS[option]
    if option in WHOLE:
        return ("-1", "0", "1", "3", "64")
    return ("-1", "0", "0.5", "2") if option in NUMBERS else ("x",)


def _accepted() -> Iterator[str]:
    """Yield the options with the values that the default job may add."""
    cluster = parse_cluster(read_mapping(CLUSTER.read_text(), "cluster.yaml"))[0]
    assert cluster is not None
    text = JOB.read_text()
    # One of each that mean the same.
    for option in {setting: option for option, setting in OPTIONS.items()}.values():
        for value in _values(option) if option.startswith("--") else ():
            words = [option, *value.split()]
            job = parse_job(read_mapping(f"{text}\nextra_args: {words}\n", "job.yaml"))[0]
            if job and not any(each.level == "error" for each in check_job(job, cluster)):
                yield " ".join(words)


def test_megatron_takes_what_is_accepted():
    """Its parser, its validation and its model, for a thousand questions."""
    added = list(_accepted())
    (default,) = (asked(job) for job in megatron_jobs(CLUSTER) if job.name == JOB.stem)
    said = zip(added, answers([default.with_words(each) for each in added]), strict=True)
    refused = {each: problem for each, problem in said if problem}
    assert len(added) > 1000
    assert refused.keys() == _NOT_HERE.keys()
    assert [each for each, why in _NOT_HERE.items() if why not in refused[each]] == []
