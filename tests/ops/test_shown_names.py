"""A support bundle shows values of names that this project renders, and of no others."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from megatron_eks.catalog import shown
from megatron_eks.catalog.environment import POLICIES, READ, Verdict
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.program_options import PROGRAM_OPTIONS
from megatron_eks.ops.support import parts
from megatron_eks.ops.support.files import shown_object
from megatron_eks.project import ROOT, load_project
from tests import examples
from tests.charts import rendered
from tests.variations import VARIATIONS

_OPTION = re.compile(r'"(--[a-z][a-z0-9_-]+)[="]')
# What our Jobs for shared directories and checks work on, data, a company's certificates, and what
# a user's own program has.
_NO_NAMES = re.compile(
    r"owner=|refused=|import contextlib, socket|\"\"\"Keeps what|shared-|\d+:\d+$"
    r"|0\d{3}|1770$|/shared(/\w+)*"
    r"|[A-Za-z0-9+/]{80,}=*|-----BEGIN CERT"
    r"|(complete|train\.py|trainer_state\.json|WANDB_API_KEY)$"
    # Kueue's settings, the same in every cluster.
    r"|\{\s*\"apiVersion\": \"config\.kueue"
    # The program of `pool-scaler`, and its settings, which say what the plan says.
    r"|\"\"\"(Nodes of pools|How many nodes|Sizes of node|Keeps the pools|What Kubernetes says)"
    r"|\"\"\"The API"
    r"|\{\s*\"cluster\": |/opt/(scaling|job-records)$"
    r"|(\.metadata|torchtitan\.train|small|2048)$"
)


def _everything(folder):
    """Render all objects of a cluster and its jobs."""
    project = load_project(folder / "cluster.yaml", datetime.now(tz=UTC).date())
    plan = project.cluster
    return [
        *rendered.platform(plan, project.outputs),
        *rendered.validation(plan),
        *(rendered.jobs(*project.jobs, plan=plan) if project.jobs else ()),
    ]


def _hidden(objects):
    """Return the values that a bundle would hide of objects."""
    kinds = {kind for _, kind in (*parts.KINDS, *parts.OF_THE_CLUSTER)}
    found = []

    def hide(value, variable=""):
        found.append(value or variable)
        return ""

    for each in objects:
        if each["kind"] in kinds:
            shown_object({k: v for k, v in each.items() if k != "description"}, hide)
    return found


@pytest.mark.parametrize("name", ["default", *examples.NAMES, *VARIATIONS])
def test_what_we_render_is_shown(name, tmp_path):
    """Each variable, key, annotation, option and field of all clusters and jobs."""
    folder = tmp_path
    if name in examples.NAMES:
        examples.copy(name, folder)
    elif name in VARIATIONS:
        cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
        VARIATIONS[name](cluster)
        (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    else:
        folder = ROOT
    hidden = [each for each in _hidden(_everything(folder)) if not _NO_NAMES.match(each)]
    assert hidden == []


def test_what_a_job_file_adds_is_not():
    """Variables, options, overrides, labels: only what stands in the file itself differs."""
    job = rendered.only(rendered.jobs(), "PyTorchJob")
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    before = _hidden([job])
    container["env"].append({"name": "WANDB_MODE", "value": "mine-1"})
    container["args"] += ["--wandb-project", "mine-2", "--wandb-exp-name=mine-3", "mine-4"]
    job["metadata"]["labels"] |= {"team": "mine-5"}
    job["metadata"]["annotations"] = {"note": "mine-6"}
    found = _hidden([job])
    assert sorted(set(found) - set(before)) == [f"mine-{number}" for number in range(1, 7)]


def test_no_variable_that_people_choose_is_on_the_list():
    """Whatever NCCL, its plugin and torch read, but what the plan, torchrun or EKS set."""
    kept = {
        name for name, each in POLICIES.items() if each.verdict in {Verdict.SET, Verdict.REFUSED}
    }
    set_by_eks = {"AWS_REGION", "AWS_DEFAULT_REGION"}
    chosen = ({*POLICIES, *READ} - kept) - set_by_eks
    assert not shown.ENVIRONMENT & chosen


def test_options_are_those_that_the_source_writes():
    """All of Megatron's that the plan sets, and none that it leaves to people."""
    listed = shown.OPTIONS | shown.FLAGS
    source = (ROOT / "megatron_eks" / "plan" / "jobs" / "arguments.py").read_text()
    of_megatron = set(_OPTION.findall(source)) - {"--fp8-recipe"}
    # Some are written as the keys whose values they take.
    keys = " ".join(re.findall(r"(?:_named\(|for key in )(.*)", source))
    words = re.findall(r"\w+", " ".join(re.findall(r'"(.*?)"', keys)))
    of_megatron |= {f"--{word.replace('_', '-')}" for word in words}
    assert of_megatron <= listed
    everywhere = of_megatron | {
        option
        for folder in ("charts", "megatron_eks/demo", "megatron_eks/ops", "megatron_eks/plan")
        for path in (ROOT / folder).rglob("*.py")
        for option in _OPTION.findall(path.read_text())
    }
    of_programs = " ".join(PROGRAM_OPTIONS.values()).replace("=", " ").replace("!", " ").split()
    assert listed - everywhere - set(of_programs) == set()
    ours = {"--" + name for name in ["model", "name", "resume", "seed", "split", "verify"]}
    assert (listed & OPTIONS.keys()) - of_megatron - ours == set()


def test_lists_are_options():
    """An option that takes many values is one that takes any."""
    assert shown.LISTS < shown.OPTIONS
    assert not shown.OPTIONS & shown.FLAGS
    assert Path(ROOT).is_dir()
