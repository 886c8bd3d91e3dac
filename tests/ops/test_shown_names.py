"""Texts keep values of names that this project renders, and of no others."""

import re

from megatron_eks.catalog import shown
from megatron_eks.catalog.environment import POLICIES, READ, Verdict
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.project import ROOT

_OPTION = re.compile(r'"(--[a-z][a-z0-9_-]+)[="]')


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
        for folder in (
            "charts",
            *(f"megatron_eks/{e}" for e in ("demo", "ops", "plan", "programs")),
        )
        for path in (ROOT / folder).rglob("*.py")
        for option in _OPTION.findall(path.read_text())
    }
    assert listed - everywhere == set()
    ours = {"--" + name for name in ["model", "name", "resume", "seed", "split", "verify"]}
    assert (listed & OPTIONS.keys()) - of_megatron - ours == set()
