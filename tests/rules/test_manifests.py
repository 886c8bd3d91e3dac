"""Every mistake in a manifest gives one exact finding; the correct variations give none."""

from pathlib import Path
from typing import Any

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Document, Json
from megatron_eks.rules.jobs import own_programs
from megatron_eks.rules.manifests import (
    check_manifests,
    findings_in_manifests,
    is_manifest,
)
from megatron_eks.rules.objects import namespaces, relations, same_things, scheduling
from megatron_eks.rules.objects.manifest_set import ManifestSet
from megatron_eks.rules.platform import json_patches, kustomize_paths, role_annotations
from megatron_eks.rules.registry import MANIFEST_RULES, SET_RULES
from megatron_eks.rules.workloads import Manifest
from tests.rules import cases

_POD_TABLES = ("pods", "pod_fields", "pod_shape", "training", "variables")
_START_TABLES = ("launches", "starts", "layouts", "written_by_hand")
CASES = [
    case for table in (*_POD_TABLES, *_START_TABLES) for case in cases.read(f"tables/{table}.yaml")
]
_JOB_TABLES = (
    *("pytorch_jobs", "fields", "job_values", "job_places", "mined_jobs", "launchers_and_files"),
    "mined_threads",
)
JOB_CASES = [case for table in _JOB_TABLES for case in cases.read(f"tables/{table}.yaml")]
_VALUE_TABLES = ("sets", "object_values", "held_out_rights")
_MINED_TABLES = ("mined_objects", "mined_parts", "mined_meeting", "mined_right")
_RELATION_TABLES = (
    "eksctl_clusters",
    "gpu_configs",
    "held_out_objects",
    "held_out_pools",
    "lacking_objects",
    "meeting_places",
    "kinds_of_others",
    "parts_of_others",
    "mpi_settings",
    "names_and_owners",
    "node_sources",
    "objects_nobody_reads",
    "other_operators",
    "open_servers",
    "platform_claims",
    "platform_jobs",
    "platform_objects",
    "platform_parts",
    "platform_relations",
    "platform_remedies",
    "platform_servers",
    "platform_supplies",
    "platform_upkeep",
    "prepared_data",
    "ranks_and_names",
    "script_ends",
    "scripts_and_groups",
    "rank_starts",
    "remedies_of_jobs",
    "relations_of_objects",
    "second_objects",
    "single_faults",
    "shell_arguments",
    "started_scripts",
    "torchrun_options",
    "train_resources",
    "unmet_labels",
    "untold_ranks",
    "waits_and_meetings",
    "written_by_hand_sets",
)
_SET_TABLES = (*_VALUE_TABLES, *_MINED_TABLES, *_RELATION_TABLES)
SETS = [case for table in _SET_TABLES for case in cases.read(f"tables/{table}.yaml")]

# Two objects of one name need files, which the tables do not have.
_OF_FILES = (
    *(relations.twice, same_things.over_files, namespaces.elsewhere),
    *(kustomize_paths.absent, kustomize_paths.unmet),
    *(kustomize_paths.generated, kustomize_paths.images, json_patches.applied),
    role_annotations.trusted,
)
_MASTER = "PyTorchJob/train.spec.pytorchReplicaSpecs.Master.template.spec"


def test_the_good_job_has_no_finding():
    """The job that every case changes is correct."""
    assert cases.findings_in_object(cases.good_job()) == []


@pytest.mark.parametrize("case", JOB_CASES, ids=[case["name"] for case in JOB_CASES])
def test_findings_in_jobs(case):
    """Each change of the good PyTorchJob gives exactly these findings."""
    assert cases.findings_in_object(cases.job_of(case)) == case["expect"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_findings_in_pods(case):
    """Each change of all pods of a workload gives exactly these findings, those of a job once."""
    kind = case.get("as", {"kind": "PyTorchJob"})["kind"]
    pod = {"PyTorchJob": _MASTER, "Pod": "Pod/own.spec"}.get(kind, f"{kind}/own.spec.template.spec")
    too = "; in the Worker too" if kind == "PyTorchJob" else ""
    expected = [
        f"{line.replace('AT', pod, 1)}{too}" if " AT" in line else line for line in case["expect"]
    ]
    assert sorted(cases.findings_in_object(cases.job_of(case))) == sorted(expected)


def test_every_rule_has_a_mistake_and_a_source():
    """No rule is without a case that needs it, and none without its reason."""
    manifests = [Manifest(cases.job_of(case)) for case in [*CASES, *JOB_CASES]]
    manifests += [Manifest(each) for case in SETS for each in case["objects"]]
    for rule in MANIFEST_RULES:
        assert "\n" in (rule.__doc__ or ""), rule.__name__
        assert any(list(rule(manifest)) for manifest in manifests), rule.__name__
    codes = {line.split()[1] for case in [*CASES, *JOB_CASES] for line in case["expect"]}
    sets = [ManifestSet([Manifest(each, "a.yaml") for each in case["objects"]]) for case in SETS]
    of_nodes = {rule for rule in SET_RULES if rule.__module__ == scheduling.__name__}
    for together in [rule for rule in SET_RULES if rule not in of_nodes]:
        assert "\n" in (together.__doc__ or ""), together.__name__
        known = together in _OF_FILES or any(list(together(each)) for each in sets)
        assert known, together.__name__
    codes |= {line.split()[1] for case in SETS for line in case["expect"]}
    ranges = (range(1, 37), range(40, 44), range(50, 65), range(70, 76), range(85, 100))
    numbers = (*(number for each in ranges for number in each), 66, 67, 68, 69, 76, 77, 78, 80, 81)
    own = {f"MEKS-06{number:02}" for number in numbers}
    of_job_files = {"MEKS-0314", "MEKS-0330"}  # the same mistakes in a file of this project's own
    others = {
        "MEKS-0347",
        "MEKS-0580",
        "MEKS-0583",
        "MEKS-0591",
        "MEKS-0682",
        "MEKS-0683",
        "MEKS-0711",
        "MEKS-0712",
        "MEKS-0713",
    }
    assert codes == own | others | of_job_files


@pytest.mark.parametrize("case", SETS, ids=[case["name"] for case in SETS])
def test_findings_in_sets(case):
    """Objects that do not fit each other give exactly these findings, correct ones none."""
    found = [str(each).replace("  ", " ", 1) for each in check_manifests(case["objects"])]
    assert found == case["expect"]


def test_the_programs_of_the_images_are_known():
    """Every program that can be started is one that a manifest may name, and no other."""
    folder = Path(__file__).parents[2] / "assets" / "programs"
    started = {each.name for each in folder.glob("*.py") if "__main__" in each.read_text()}
    assert started == own_programs.PROGRAMS


def test_an_object_without_the_namespace_of_the_others():
    """One object of a folder leaves out what all others say; in default it says nothing."""
    for space, count in (("ml-jobs", 1), ("default", 0)):
        metadata: list[dict[str, Json]] = [{"name": f"p{each}"} for each in range(4)]
        for each in metadata[:3]:
            each["namespace"] = space
        containers: Json = [{"name": "c", "image": "a:1"}]
        objects = [
            Manifest(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": each,
                    "spec": {"containers": containers},
                },
                f"jobs/{index}.yaml",
            )
            for index, each in enumerate(metadata)
        ]
        found = [str(each) for _, each in namespaces.unsaid(ManifestSet(objects))]
        assert len(found) == count
        assert all(each.endswith("- write namespace: ml-jobs") for each in found)


def test_a_namespace_that_none_of_the_others_has():
    """One object of a folder is in a namespace that nothing makes, and that is nearly theirs."""
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml-jobs"}}
    names = ("ml-jobs", "ml-jobs", "ml-jobs", "ml-training")
    containers: Json = [{"name": "c", "image": "a:1"}]
    pods: list[dict[str, Json]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{index}", "namespace": name},
            "spec": {"containers": containers},
        }
        for index, name in enumerate(names)
    ]
    objects = [Manifest(each, f"jobs/{index}.yaml") for index, each in enumerate(pods)]
    assert list(namespaces.elsewhere(ManifestSet(objects))) == []
    assert isinstance(space, dict)
    whole = ManifestSet([Manifest(space, "platform/spaces.yaml"), *objects])
    expected = (
        "Pod/p3.metadata.namespace: nothing here makes namespace 'ml-training', and the objects "
        "beside it are in ml-jobs - write ml-jobs, or make the namespace"
    )
    (found,) = namespaces.elsewhere(whole)
    assert str(found[1]).endswith(expected)


def test_another_folder_is_another_example():
    """Without a namespace only the objects of one folder are meant for each other."""
    case = next(each for each in SETS if each["name"] == "a key that a ConfigMap lacks")
    config, pod = case["objects"]
    text = "apiVersion: v1\nkind: Pod\n"
    for folder, findings in (("one", 1), ("two", 0)):
        documents = [Document("one/config.yaml", config), Document(f"{folder}/pod.yaml", pod)]
        assert len(findings_in_manifests(documents, lambda _: text)) == findings


def test_an_object_twice_in_a_file():
    """A second object of one name is a finding in its own file, and none in an overlay."""
    one, same, overlay = (Document(file, cases.good_job()) for file in ("a", "a", "b"))
    text = "apiVersion: v1\nkind: Pod\n"
    (finding,) = findings_in_manifests([one, same, overlay], lambda _: text)
    assert (finding.code, finding.file) == (Code.DUPLICATE_OBJECT, "a")


def test_an_object_in_two_files_of_a_folder():
    """The last one applied stands, unless the folder is Kustomize's or the two are equal."""
    one, same, other = (cases.good_job() for _ in range(3))
    other["spec"]["runPolicy"] = {"cleanPodPolicy": "All"}
    kustomize: Json = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    text = "apiVersion: v1\nkind: Pod\n"
    for second, folder, extra, codes in (
        (other, "jobs", [], [Code.DUPLICATE_OBJECT]),
        (same, "jobs", [], []),
        (other, "others", [], []),
        (other, "jobs", [Document("jobs/kustomization.yaml", kustomize)], []),
    ):
        documents = [Document("jobs/a.yaml", one), Document(f"{folder}/b.yaml", second), *extra]
        found = findings_in_manifests(documents, lambda _: text)
        assert [each.code for each in found if each.code is Code.DUPLICATE_OBJECT] == codes


def test_elements_of_a_list_are_objects():
    """A List is judged by its elements."""
    bad = cases.job_of({"set": {"spec.nprocPerNode": 8}})
    listed: Any = {"apiVersion": "v1", "kind": "List", "items": [cases.good_job(), bad, None]}
    (finding,) = check_manifests([listed])
    assert finding.path == ("PyTorchJob/train", "spec", "nprocPerNode")


def test_a_secret_is_never_printed():
    """Findings say where a secret stands, never what it is."""
    secret = "hf_" + "s" * 34
    job = cases.job_of(
        {
            "set": {
                "Worker.containers.0.env.0": {"name": "HF_TOKEN", "value": secret},
                "Worker.containers.0.args": [f"--hf_token={secret}", "--hf_token", secret],
            }
        }
    )
    lines = [str(finding) for finding in check_manifests([job])]
    assert len(lines) > 2
    assert not [line for line in lines if secret in line]


def test_manifests_are_told_from_other_files():
    """An object is known by two of its three marks, so that an incomplete one is reported."""
    assert is_manifest(cases.good_job())
    assert is_manifest({"kind": "Job", "metadata": {}})
    assert is_manifest({"apiVersion": "v1", "metadata": {}})
    assert not is_manifest({"kind": "megatron", "name": "train"})
    assert not is_manifest({"apiVersion": 1, "kind": 2})
    assert not is_manifest([])
