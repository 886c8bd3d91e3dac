"""No remedy that validation refuses: what explanations and signatures tell people to set."""

import re
from pathlib import Path

import pytest
import yaml

from megatron_eks.catalog.megatron_options import FLAGS, OPTIONS
from megatron_eks.config.explanations import explanations
from tests.config.test_job_errors import CLUSTER, GOOD, findings

PACKAGE = Path(__file__).parents[2] / "megatron_eks" / "diagnosis"
SIGNATURES = [text for file in PACKAGE.glob("signatures_*.yaml") for text in [file.read_text()]]
# Modules hold sentences too: they are read as they stand, line breaks and all.
TEXTS = [
    *(each.remedy for each in explanations().values()),
    *re.findall(r"^ *remedy: (.*)$", "\n".join(SIGNATURES), re.MULTILINE),
    *((PACKAGE / f"{name}.py").read_text() for name in ("activity", "diagnose", "stalls")),
]
IMAGE = f"111122223333.dkr.ecr.us-west-2.amazonaws.com/own@sha256:{'0' * 64}"
OWN = GOOD.replace("image: megatron", f"image: {IMAGE}")
HOPPER = CLUSTER.replace("p4d.24xlarge", "p5.48xlarge")

VARIABLE = re.compile(
    r"(?<!TORCH_)\b((?:NCCL|CUDA|FI|RDMAV|NVTE|TORCH|PYTORCH|NVIDIA)_\w+)=([\w,:/]+)"
)
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]+)(?: ([0-9a-z_]+)(?=[ .,;)]))?")
SET = sorted({(n, v.rstrip(",:")) for text in TEXTS for n, v in VARIABLE.findall(text)})
TOLD = sorted({name for text in TEXTS for name, _ in OPTION.findall(text) if name in OPTIONS})
OF_ONES_OWN = {"--tokenizer-type"}
"""Told for a command that is not ours, beside the key of the job file."""


def said(key: str, value: object) -> list[str]:
    """Return the errors of a good job at one more key."""
    text = re.sub(rf"^{key.partition('.')[0]}:.*\n(?: .*\n)*", "", OWN, flags=re.MULTILINE)
    text += yaml.safe_dump({"runtime": {"env": value}} if key == "runtime" else {key: value})
    return [line for line in findings(text, HOPPER) if line.startswith("error")]


def test_remedies_are_found():
    """The expressions above read what stands there."""
    assert ("NCCL_NVLS_ENABLE", "0") in SET
    assert "--attention-backend" in TOLD


@pytest.mark.parametrize(("name", "value"), SET)
def test_a_variable_that_a_remedy_sets_is_accepted(name, value):
    """With a warning that names its price, if it has one."""
    assert said("runtime", {name: value}) == []


@pytest.mark.parametrize("name", TOLD)
def test_an_option_that_a_remedy_names_is_accepted(name):
    """What a job file has a key for, and what the plan sets, is told by that key."""
    words = [name] if name in FLAGS else [name, "1"]
    refused = [
        line for line in said("extra_args", words) if "MEKS-0332" in line or "MEKS-0381" in line
    ]
    assert refused == [] or name in OF_ONES_OWN
