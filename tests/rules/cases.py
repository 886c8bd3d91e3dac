"""Reads the tables of mistakes: each changes a good fragment and names the findings exactly."""

import json
import re
from pathlib import Path
from typing import Any

from megatron_eks.config.load import read_documents
from megatron_eks.rules.manifests import check_manifests
from megatron_eks.rules.templates import check_templates

HERE = Path(__file__).parent

_STACKS = ("Network", "Cluster", "Storage")
_ATTRIBUTES = ("Type", "DeletionPolicy", "UpdateReplacePolicy", "DependsOn")
_SHORT = {
    "nics": "GpuTemplate.LaunchTemplateData.NetworkInterfaces",
    "gpu": "GpuTemplate.LaunchTemplateData",
}
_REPLICAS = "spec.pytorchReplicaSpecs"


def read(path: str) -> Any:
    """Read a YAML file beside this one, tags of CloudFormation included."""
    (document,) = read_documents((HERE / path).read_text(), path)
    assert document.findings == []
    return document.value


def copy(value: Any) -> Any:
    """Copy a value; parts that YAML aliases share become separate."""
    return json.loads(json.dumps(value))


def good_templates() -> dict[str, Any]:
    """Return three stacks that are deployed together, without a finding."""
    return {stack: copy(read(f"good/{stack}.yaml")) for stack in _STACKS}


def good_job() -> dict[str, Any]:
    """Return a PyTorchJob without a finding."""
    job: dict[str, Any] = copy(read("good/job.yaml"))
    return job


def templates_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the templates with the changes of a case, or the files that it brings itself."""
    if "files" in case:
        files: dict[str, Any] = copy(case["files"])
        return files
    templates = good_templates()
    _change(templates, case, lambda path: [_in_templates(path, templates)])
    resources = templates["Storage"].get("Resources")
    system = resources.get("Lustre") if isinstance(resources, dict) else None
    if isinstance(system, dict) and isinstance(system.get("DependsOn"), list):
        # It does not wait for a rule that the case takes away.
        system["DependsOn"] = [name for name in system["DependsOn"] if name in resources]
    return templates


def job_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the job, or the object of another kind with its pod, with the changes of a case."""
    job = good_job()
    if "as" in case:
        pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        job = {"metadata": {"name": "own"}} | case["as"]
        if not job["apiVersion"].startswith("rbac."):
            job.setdefault("spec", {"template": {"spec": pod}})
        if job["kind"] in {"Job", "CronJob", "Pod"}:
            pod["restartPolicy"] = "Never"
        if job["apiVersion"] == "apps/v1" and "spec" not in case["as"]:
            labels = {"app": "own"}
            job["spec"]["selector"] = {"matchLabels": labels}
            job["spec"]["template"]["metadata"] = {"labels": labels}
        if job["kind"] == "Pod":
            job["spec"] = pod
    change_object(job, case)
    return job


def findings_in_templates(templates: dict[str, Any]) -> list[str]:
    """Apply every rule to templates."""
    return [str(finding) for finding in check_templates(templates)]


def findings_in_object(value: Any) -> list[str]:
    """Apply every rule to a Kubernetes object; files have names, this has none."""
    return [str(finding).replace("  ", " ", 1) for finding in check_manifests([value])]


def change_object(body: Any, case: dict[str, Any]) -> None:
    """Make the changes of a case to a Kubernetes object, in place."""
    _change(body, case, lambda path: _in_object(path, body["kind"]))


def _change(root: Any, case: dict[str, Any], places: Any) -> None:
    for path, value in (case.get("set") or {}).items():
        for place in places(path):
            for parent, last in _nodes(root, _parts(place)):
                if isinstance(parent, list) and last == len(parent):
                    parent.append(copy(value))
                else:
                    parent[last] = copy(value)
    # From the end, so that the places of a list's earlier elements stay right.
    for path in sorted(case.get("drop") or [], reverse=True):
        for place in places(path):
            for parent, last in _nodes(root, _parts(place)):
                del parent[last]


def _parts(path: str) -> list[str]:
    """Split a path at its dots; a key that has dots itself stands in brackets."""
    return [part.strip("[]") for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", path)]


def _nodes(node: Any, parts: list[str]) -> list[tuple[Any, Any]]:
    """Return the parents of what a path names, each with the last key; `*` is every element."""
    first, *rest = parts
    if first == "*":
        return [found for child in node for found in _nodes(child, rest)]
    key = int(first) if isinstance(node, list) else first
    return _nodes(node[key], rest) if rest else [(node, key)]


def _in_templates(path: str, templates: dict[str, Any]) -> str:
    """Write a short path (`Resource.Property...`, `Stack:anything`) as one from the root."""
    stack, colon, rest = path.partition(":")
    if colon and stack in templates:
        return f"{stack}.{rest}"
    name, _, rest = path.partition(".")
    name, _, inner = (_SHORT.get(name, name) + (f".{rest}" if rest else "")).partition(".")
    stack = next(each for each in _STACKS if name in templates[each]["Resources"])
    direct = not inner or inner in _ATTRIBUTES
    return (
        f"{stack}.Resources.{name}{'' if direct else '.Properties'}{f'.{inner}' if inner else ''}"
    )


def _in_object(path: str, kind: str) -> list[str]:
    """Write a short path (`pods`, `Master`, `Worker`) as those of the pods' specs."""
    name, _, rest = path.partition(".")
    if name == "pods" and kind != "PyTorchJob":
        return [f"spec.{rest}" if kind == "Pod" else f"spec.template.spec.{rest}"]
    names = {"pods": ("Master", "Worker"), "Master": ("Master",), "Worker": ("Worker",)}.get(name)
    return [f"{_REPLICAS}.{each}.template.spec.{rest}" for each in names] if names else [path]
