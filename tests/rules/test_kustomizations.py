"""Kustomizations on disk: what kustomize refuses, and what it lays over other objects."""

import pytest

from megatron_eks.ops.check import Checked
from megatron_eks.rules.platform.kustomizations import REFUSED

_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: board, namespace: team}
spec:
  selector: {matchLabels: {app: board}}
  template:
    metadata: {labels: {app: board}}
    spec:
      containers: [{name: board, image: "registry.example/board:1.2"}]
"""
_PATCH = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: board}
spec:
  template:
    spec: {containers: [{name: board, image: "registry.example/board:1.3"}]}
"""
_ON_BOARD = "resources: [board.yaml]\npatches: [{target: {kind: Deployment, name: board}, patch:"


def _found(folder, kustomization, patch=_PATCH, name="kustomization.yaml"):
    (folder / "board.yaml").write_text(_DEPLOYMENT)
    (folder / "patch.yaml").write_text(patch)
    (folder / "run.sh").write_text("true\n")
    (folder / "base").mkdir(exist_ok=True)
    (folder / "base" / "kustomization.yaml").write_text("resources: [https://example.com/a.yaml]\n")
    (folder / "empty").mkdir(exist_ok=True)
    (folder / name).write_text(kustomization)
    checked = Checked()
    checked.add(folder)
    return [
        f"{each.level} {each.code} {'.'.join(map(str, each.path[1:]))}: {each.found} - "
        f"{each.remedy}"
        for each in checked.findings()
    ]


def _patch_of(text):
    """Return the patch if something names it; else it would be an object."""
    return _PATCH if "patch.yaml" in text else "[]\n"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("resource: [board.yaml]", "resource", "did you mean resources?"),
        ("resources: board.yaml", "resources", "is no list"),
        ("kind: Kustomisation", "kind", "write Kustomization"),
        ("apiVersion: v1", "apiVersion", "kustomize.config.k8s.io/v1beta1"),
        ("kind: Component", "apiVersion", "v1alpha1"),
        ("resources: [bord.yaml]", "resources.0", "there is no file 'bord.yaml'"),
        ("resources: [empty]", "resources.0", "without a kustomization.yaml"),
        ("components: [../parts/gpu]", "components.0", "is not there"),
        ("configurations: [names.yaml]", "configurations.0", "no file"),
        ("configMapGenerator: [{name: a, files: [run.py]}]", "files.0", "no file 'run.py'"),
        ("configMapGenerator: [{name: a, files: [s=../run.sh]}]", "files.0", "no file"),
        ("configMapGenerator: [{name: a, file: [run.sh]}]", "file", "did you mean files?"),
        ("resources: [board.yaml]\npatches: [{path: b.yaml}]", "patches.0.path", "no file"),
        ("patches: [{target: {kind: Deployment}}]", "patches.0", "neither path nor patch"),
        ("patches: [{path: patch.yaml, patch: 'a: b'}]", "patches.0", "both path and patch"),
        ("patches: [patch.yaml]", "patches.0", "- path: FILE"),
        ("patches: [{patch: [{op: remove, path: /a}]}]", "patches.0.patch", "as a text"),
        ("patches: [{path: patch.yaml, target: {labels: a}}]", "target.labels", "labelSelector"),
        ("resources: [board.yaml, ./board.yaml]", "resources.1", "is listed twice"),
        ("images: [{name: a, newTag: 1.10}]", "images.0.newTag", 'newTag: "1.10"'),
        ("images: [{name: a, tag: v1}]", "images.0.tag", "no field"),
        ("images: [{name: 'a:v0', newTag: v1}]", "images.0.name", "without their tag"),
        ("replicas: [{name: board, count: two}]", "replicas.0.count", "no number"),
        ("replicas: [{name: board, count: '2'}]", "replicas.0.count", "no number"),
        ("configMapGenerator: [{name: a, literals: [{A: b}]}]", "literals.0", "write A=b"),
        ("secretGenerator: [{name: a, literals: [A]}]", "literals.0", "write NAME=VALUE"),
        (
            "resources: [board.yaml]\nimages: [{name: registry.example/bord, newTag: v1}]",
            "images.0.name",
            "there: registry.example/board",
        ),
        (
            "patches: [{target: {kind: Job}, patch: '[{op: add, path: /a/nvidia.com/gpu}]'}]",
            "patches.0.patch",
            "write /a/nvidia.com~1gpu",
        ),
        ("resources: [board.yaml, board.yaml]", "resources.1", "listed twice"),
        (
            f"{_ON_BOARD} '[{{op: replace, path: /spec/templates/spec, value: 2}}]'}}]",
            "patches.0.patch",
            (
                "Deployment/board has no '/spec/templates': kustomize refuses the file - "
                "did you mean template?"
            ),
        ),
        (
            (
                f"{_ON_BOARD} '[{{op: add, path: /spec/replicas, value: 2}},"
                " {op: replace, path: /spec/template/spec/containers/1/image, value: a}]'}]"
            ),
            "patches.0.patch",
            "has no '/spec/template/spec/containers/1': kustomize refuses the file - there: 0 to 0",
        ),
        ("patchesJson6902: [{path: patch.yaml}]", "patchesJson6902.0.target", "add target"),
        ("namespace: Team_A", "namespace", "no name of a namespace"),
        ("commonLabels: {version: 1}", "commonLabels.version", "in quotes"),
        ("commonAnnotations: {a.b/c: true}", "commonAnnotations.a.b/c", "in quotes"),
        (
            "resources: [board.yaml]\npatches: [{path: run.sh, target: {kind: Job}}]",
            "patches.0.target",
            "nothing is changed",
        ),
    ],
)
def test_what_kustomize_refuses(tmp_path, text, place, said):
    """Each mistake is told once, where it stands."""
    (finding,) = _found(tmp_path, f"{text}\n", _patch_of(text))
    assert "MEKS-0347" in finding
    assert f"{place}: " in finding
    assert said in finding


@pytest.mark.parametrize(
    "text",
    [
        "resources: [board.yaml, base, https://example.com/a.yaml, github.com/o/r//p?ref=v1]",
        "resources: [board.yaml]\npatches: [{path: patch.yaml}]",
        "resources: [board.yaml]\npatchesStrategicMerge: [patch.yaml]",
        "resources: [board.yaml]\npatches:\n- target: {kind: Depl.*}\n  path: patch.yaml",
        "resources: [board.yaml, base]\npatches: [{patch: 'a', target: {kind: Job}}]",
        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nreplicas: []",
        "replicas: [{name: a, count: 2}]",
        (
            f"{_ON_BOARD} '[{{op: add, path: /spec/strategy, value: {{}}}}, {{op: replace, path:"
            " /spec/strategy/type, value: a}, {op: remove, path: /metadata/labels/a},"
            " {op: replace, path: /spec/template/spec/containers/0/image, value: a}]'}]"
        ),
        (
            f"{_ON_BOARD} '[{{op: add, path: /spec/template/spec/containers/-, value: {{}}}},"
            " {op: replace, path: /spec/template/spec/containers/1/image, value: a}]'}]"
        ),
        "resources: [board.yaml]\nimages: [{name: registry.example/board, newTag: v1}]",
        "resources: [board.yaml, base]\nimages: [{name: other, newTag: v1}]",
        "patches: [{target: {kind: Job}, patch: '[{op: add, path: /a/nvidia.com~1gpu}]'}]",
        "resources: [base]\nsecretGenerator: [{name: a}]\npatches: [{target: {kind: A}, patch: a}]",
        "resources: [board.yaml]\nsecretGenerator: [{name: a}]\npatches: [{target: {}, patch: a}]",
        "configMapGenerator: [{name: a, files: [run.sh, other=run.sh], literals: [A=b]}]",
        "secretGenerator: [{name: a, envs: [.env], type: Opaque}]",
        "images: [{name: a, newName: b, newTag: '1.0'}]\nnamespace: ${TEAM}",
        "labels: [{pairs: {a: b}, includeSelectors: true}]\ncommonLabels: {a: b}",
        "patchesStrategicMerge:\n- |-\n  kind: Deployment\n  metadata: {name: a}",
        "buildMetadata: [originAnnotations]\nsortOptions: {order: fifo}\nNamePrefix: a-",
    ],
)
def test_what_kustomize_reads(tmp_path, text):
    """A Kustomization that is right has no finding, nor has the part that it lays over another."""
    assert _found(tmp_path, f"{text}\n", _patch_of(text)) == []


def test_a_patch_is_no_object(tmp_path):
    """It need not be whole, but what stands in it is judged; alone it must be an object."""
    kustomization = "resources: [board.yaml]\npatches: [{path: patch.yaml}]\n"
    wrong = _PATCH.replace("image:", "imagePulPolicy: Always, image:")
    (finding,) = _found(tmp_path, kustomization, wrong)
    assert "imagePullPolicy" in finding
    (finding,) = _found(tmp_path, kustomization, _PATCH.replace("name: board}", "name: bard}", 1))
    assert "no Deployment/bard among its resources: kustomize refuses the file" in finding
    assert any("MEKS-0675" in each or "selector" in each for each in _found(tmp_path, "{}\n"))


def test_a_name_that_is_nearly_generated(tmp_path):
    """A pod waits for a ConfigMap that the Kustomization makes by another name."""
    text = "resources: [pod.yaml]\nconfigMapGenerator: [{name: settings, literals: [A=b]}]\n"
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  restartPolicy: Never\n"
        "  containers: [{name: a, image: 'a/b:1', envFrom: [{configMapRef: {name: NAME}}]}]\n"
    )
    (tmp_path / "kustomization.yaml").write_text(text)
    for name, said in (("settings", []), ("setting", ["write settings"]), ("other", [])):
        (tmp_path / "pod.yaml").write_text(pod.replace("NAME", name))
        checked = Checked()
        checked.add(tmp_path)
        assert [each.remedy for each in checked.findings()] == said


def test_a_file_of_operations(tmp_path):
    """A JSON patch is judged where it stands, whoever names it."""
    file = tmp_path / "gpus.yaml"
    file.write_text(
        "- {op: replace, path: /spec/replicas, value: 2}\n"
        "- {op: repalce, path: /a, value: 2}\n"
        "- {op: add, path: spec.replicas, value: 2}\n"
        "- op: add\n  path: /limits/nvidia.com/gpu\n  value: 8\n"
    )
    checked = Checked()
    checked.add(file)
    two, odd = "the key nvidia.com/gpu is taken for two", "does not begin with a slash"
    assert [str(each).partition(file.name)[2] for each in checked.findings()] == [
        f":2 [1].op: 'repalce' is no operation: {REFUSED} - did you mean replace?",
        f":3 [2].path: 'spec.replicas' {odd}: {REFUSED} - write /spec/replicas",
        f":5 [3].path: '/limits/nvidia.com/gpu': {two} - write /limits/nvidia.com~1gpu",
    ]


def test_a_file_outside_the_folder(tmp_path):
    """Kustomize reads no file outside its folder, unless it is told to."""
    (tmp_path / "run.sh").write_text("true\n")
    (tmp_path / "one").mkdir()
    found = _found(tmp_path / "one", "configMapGenerator: [{name: a, files: [../run.sh]}]\n", "[]")
    assert len(found) == 1
    assert "warning MEKS-0347 configMapGenerator.0.files.0: '../run.sh' lies outside" in found[0]


def test_another_program_has_a_kustomization_too(tmp_path):
    """That of Flux is an object of the cluster."""
    flux = (
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n"
        "metadata: {name: a}\nspec: {path: ./deploy, prune: true}\n"
    )
    assert _found(tmp_path, flux, "[]", "flux.yaml") == []


_ROLES = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects: [{kind: ServiceAccount, name: reader}]
"""
_BINDING = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ops-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
"""
_HOOK = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: pod.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: hook, namespace: system, path: /validate}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
"""
_SELECTOR = (
    "- {op: add, path: /webhooks/0/namespaceSelector, value: {matchExpressions: "
    "[{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}}\n"
)


def _codes(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    checked = Checked()
    checked.add(folder)
    return sorted(finding.code for finding in checked.findings())


def test_what_kustomize_adds_is_not_missing(tmp_path):
    """A prefix of names, a namespace, and a selector in a patch come when it builds the files."""
    files = {"roles": _ROLES, "binding": _BINDING, "hook": _HOOK, "selector": _SELECTOR}
    assert _codes(tmp_path, **files) == ["MEKS-0654", "MEKS-0671", "MEKS-0693"]
    patches = "patches: [{path: selector.yaml, target: {kind: ValidatingWebhookConfiguration}}]"
    whole = (
        "namePrefix: ops-\nnamespace: monitoring\n"
        f"resources: [roles.yaml, binding.yaml, hook.yaml]\n{patches}\n"
    )
    assert _codes(tmp_path, kustomization=whole) == []
    other = whole.replace("Validating", "Mutating").replace("ops-", "op-")
    other = other.replace("namespace: monitoring\n", "")
    found = _codes(tmp_path, kustomization=other)
    assert {"MEKS-0654", "MEKS-0671", "MEKS-0693"} <= set(found)


def test_patches_and_clusters_in_one_folder_are_no_duplicates(tmp_path):
    """Patches wait for a Kustomization elsewhere; eksctl takes one file at a time."""
    (tmp_path / "patches").mkdir()
    for number in (1, 2):
        part = f"kind: Service\nmetadata: {{name: a}}\nspec: {{sessionAffinityConfig: {number}}}\n"
        cluster = (
            "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {name: a, region: "
        )
        (tmp_path / "patches" / f"{number}.yaml").write_text(f"apiVersion: v1\n{part}")
        (tmp_path / f"{number}.yaml").write_text(f"{cluster}us-east-{number}}}\n")
    assert "MEKS-0665" not in _codes(tmp_path)
