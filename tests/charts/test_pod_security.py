"""The Pod Security function that chart tests rely on, against the API server's own cases."""

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from tests.charts.pod_security import violations
from tests.upstream.modules import module_directory

Level = Literal["baseline", "restricted"]

_RESTRICTED: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}

# Outside what the function covers, as its module says: old AppArmor annotations, Windows, user
# namespaces. No chart emits any of them.
_UNCOVERED = {
    ("fail", "apparmorprofile0"),
    ("fail", "apparmorprofile1"),
    ("pass", "base_windows"),
    ("pass", "procmount1"),
}


def test_a_hardened_pod_has_no_violations():
    """A pod that does what the restricted profile asks for passes both levels."""
    assert violations(_RESTRICTED, "restricted") == []
    assert violations(_RESTRICTED, "baseline") == []


def test_a_bare_init_container_is_reported():
    """Init containers are judged like the others; the training operator's default one fails."""
    pod = {**_RESTRICTED, "initContainers": [{"name": "init-pytorch"}]}
    assert violations(pod, "restricted") == [
        "initContainers[init-pytorch] does not forbid privilege escalation",
        "initContainers[init-pytorch] does not drop ALL capabilities",
    ]


@pytest.mark.oracle
@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_every_upstream_case_gets_upstreams_verdict(level: Level, verdict: str):
    """Each pod that Kubernetes 1.35 admits passes here, and each that it refuses is reported."""
    module = module_directory("k8s.io/pod-security-admission")
    cases = sorted((module / "test/testdata" / level / "v1.35" / verdict).glob("*.yaml"))
    assert cases
    wrong = [
        case.name
        for case in cases
        if (verdict, case.stem) not in _UNCOVERED
        and (verdict == "pass") == bool(_judge(case, level))
    ]
    assert wrong == []


def _judge(case: Path, level: Level) -> list[str]:
    return violations(yaml.safe_load(case.read_text(encoding="utf-8"))["spec"], level)
