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


def test_queues_of_one_name_in_several_files(tmp_path):
    """An example has the queue of its own file, and nobody knows which one of two others."""
    queue = (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: l, namespace: n}\n"
        "spec: {clusterQueue: %s}\n---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\n"
        "metadata: {name: %s}\nspec: {namespaceSelector: {}, resourceGroups: [{coveredResources: "
        "[memory], flavors: [{name: f, resources: [{name: memory, nominalQuota: 9Gi}]}]}]}\n"
    )
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: n, labels: "
        "{kueue.x-k8s.io/queue-name: l}}\nspec: {suspend: true, template: {spec: {restartPolicy: "
        "Never, containers: [{name: c, image: 'a:1', resources: {requests: {cpu: 1}}}]}}}\n"
    )
    (tmp_path / "job.yaml").write_text(job)
    (tmp_path / "one.yaml").write_text(queue % ("one", "one"))
    wrong = "MEKS-0711 ClusterQueue/one.spec.resourceGroups"
    assert wrong in _check(tmp_path)
    (tmp_path / "two.yaml").write_text(queue % ("two", "two"))
    assert not [each for each in _check(tmp_path) if "0711" in each and "resource" in each]
    (tmp_path / "one.yaml").write_text(queue % ("one", "one") + "---\n" + job)
    assert [each for each in _check(tmp_path) if "0711" in each and "resource" in each]


def test_a_secret_of_the_same_folder_is_meant(tmp_path):
    """Of two with one name and namespace, that of the own folder is meant."""
    keys = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n}\nstringData: {%s: x}\n"
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: n}\nspec: {containers: "
        "[{name: c, image: 'a:1', env: [{name: A, valueFrom: {secretKeyRef: "
        "{name: s, key: two}}}]}]}\n"
    )
    for folder, key in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "secret.yaml").write_text(keys % key)
    (tmp_path / "b" / "pod.yaml").write_text(pod)
    assert not [each for each in _check(tmp_path) if "0654" in each]
    (tmp_path / "b" / "secret.yaml").write_text(keys % "three")
    assert [each for each in _check(tmp_path) if "0654" in each]


def test_two_releases_in_one_folder_are_one_finding(tmp_path):
    """Files that have most objects in common are told once, with how many they are."""
    objects = "".join(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: n}}\n"
        "data: {a: %s}\n---\n"
        for name in ("a", "b", "c")
    )
    (tmp_path / "one.yaml").write_text(objects.replace("%s", "one"))
    (tmp_path / "two.yaml").write_text(objects.replace("%s", "two"))
    checked = Checked()
    checked.add(tmp_path)
    (finding,) = checked.findings()
    assert finding.found == (
        "one.yaml has another ConfigMap/a and 2 more of what this file has: "
        "the last one that is applied stands"
    )
