"""What is allowed on purpose: listed, not counted, and never without a reason."""

import json

import pytest

from tests.rules import cases
from tests.rules.test_check import BAD_POD, check

WHY = "the tag is pinned by the registry"
ALLOWED = "allowed MEKS-0609 {}:{} Pod/bad.spec.containers[0].image: 'nginx' is whatever was pushed"


@pytest.mark.parametrize(
    "pod",
    [
        BAD_POD.replace("image: nginx", f"image: nginx  # meks: allow MEKS-0609 {WHY}"),
        f"# meks: allow MEKS-0609 {WHY}\n{BAD_POD.partition(chr(10))[2]}",
        BAD_POD.replace("bad}", f'bad, annotations: {{megatron-eks/allow: "MEKS-0609 {WHY}"}}}}'),
    ],
    ids=["inside", "above", "annotation"],
)
def test_a_finding_that_is_allowed(tmp_path, capsys, pod):
    """It is listed with its reason, and counts neither as error nor as warning."""
    path = tmp_path / "pod.yaml"
    path.write_text(pod)
    code, (found,) = check(path)
    assert code == 0
    assert found.startswith(ALLOWED.format(path, 7))
    assert found.endswith(f" - allowed: {WHY}")
    assert capsys.readouterr().err.endswith(": 0 errors, 0 warnings, 1 allowed\n")


def test_a_resource_allows_by_its_metadata(tmp_path):
    """An error of a template is allowed for that resource alone."""
    templates = cases.templates_of(
        {"drop": ["Lustre.DeletionPolicy", "Lustre.UpdateReplacePolicy"]}
    )
    lustre = templates["Storage"]["Resources"]["Lustre"]
    lustre["Metadata"] = {"meks": {"allow": {"MEKS-0507": "scratch data only"}}}
    path = tmp_path / "Storage.json"
    path.write_text(json.dumps(templates["Storage"]))
    code, lines = check(path)
    assert code == 0
    assert [line.split()[0] for line in lines] == ["allowed"]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("allow MEKS-0609", "error MEKS-0710 {}:1 .: MEKS-0609 is allowed without a reason - "),
        ("allow everything", "error MEKS-0710 {}:1 .: no code is allowed - "),
        (
            "allow MEKS-0614 it is a test",
            "warning MEKS-0710 {}:1 .: MEKS-0614 is allowed, and was not found here - remove it",
        ),
    ],
)
def test_allowances_that_are_wrong(tmp_path, comment, expected):
    """Without a code, a reason, or a finding, the allowance itself is one; nothing is hidden."""
    path = tmp_path / "pod.yaml"
    path.write_text(f"# meks: {comment}\n{BAD_POD.partition(chr(10))[2]}")
    _, lines = check(path)
    assert any(line.startswith(expected.format(path)) for line in lines)
    assert any(line.startswith("warning MEKS-0609") for line in lines)
