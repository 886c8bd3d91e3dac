"""What public samples do rightly, and the mistakes next to it."""

import pytest

from megatron_eks.config.errors import Level, dotted
from megatron_eks.ops.check import Checked
from megatron_eks.rules.manifests import check_manifests
from megatron_eks.rules.templates import check_templates
from tests.rules import cases

SAMPLES = cases.read("tables/public_samples.yaml")
CHART = """\
apiVersion: v1
kind: Namespace
metadata:
  name: {{ name }}
  labels:
    {{ key }}: {{ value }}
"""


def _said(finding):
    level = "warning " if finding.level is Level.WARNING else ""
    return f"{level}{finding.code} {dotted(finding.path)}"


@pytest.mark.parametrize("case", SAMPLES, ids=[case["name"] for case in SAMPLES])
def test_public_samples(case):
    """Right samples give no finding, and their neighbours exactly these."""
    found = [*check_manifests(case.get("objects", [])), *check_templates(case.get("templates", {}))]
    assert sorted(map(_said, found)) == sorted(case["expect"])


def _check(*files):
    checked = Checked()
    for file in files:
        checked.add(file)
    return sorted(_said(finding) for finding in checked.findings())


def test_an_unfilled_template_is_said_once(tmp_path):
    """What waits for an engine is one finding, and no wrong value besides."""
    (tmp_path / "a.yaml").write_text(CHART)
    assert {each.split()[0] for each in _check(tmp_path / "a.yaml")} == {"MEKS-0002"}


def test_examples_beside_each_other_keep_to_themselves(tmp_path):
    """A pod finds what it names in its own file first."""
    keys = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\nstringData: {%s: x}\n"
    pod = (
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: n}\nspec: {containers: "
        "[{name: c, image: 'a:1', env: [{name: A, valueFrom: {secretKeyRef: "
        "{name: s, key: two}}}]}]}\n"
    )
    (tmp_path / "a.yaml").write_text(keys % "one")
    (tmp_path / "b.yaml").write_text(keys % "two" + pod % "p")
    assert not [each for each in _check(tmp_path) if "0654" in each]
    (tmp_path / "b.yaml").write_text(keys % "one" + pod % "p")
    assert [each for each in _check(tmp_path) if "0654" in each]


def test_a_kustomization_is_known_by_its_file(tmp_path):
    """Kustomize asks for neither kind nor apiVersion in its file."""
    job = (cases.HERE / "good" / "job.yaml").read_text()
    image = next(line.split("image:")[1].strip() for line in job.splitlines() if "image:" in line)
    name = image.strip("\"'").partition("@")[0]
    (tmp_path / "job.yaml").write_text(job.replace(image, name.rpartition(":")[0] or name))
    assert [each for each in _check(tmp_path) if "0609" in each]
    short = name.rpartition(":")[0] or name
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [job.yaml]\nimages: [{{name: {short}, newTag: v1}}]\n"
    )
    assert not [each for each in _check(tmp_path) if "0609" in each]
