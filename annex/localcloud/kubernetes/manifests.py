"""What our charts emit, and the operator's part of it changed for an operator outside of pods."""

import copy
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from megatron_eks.kubernetes.client import Object
from megatron_eks.project import ROOT

FOLDERS = ("platform", "validation", "jobs")

_OPERATOR = "training-operator"


class SynthesisError(Exception):
    """The charts were not written; what is wrong with them has been printed."""


@dataclass(frozen=True)
class OperatorProcess:
    """What it takes to run the operator of a chart as a process."""

    objects: tuple[Object, ...]
    """The chart without its Deployment, with a webhook that leads to the process."""
    namespace: str
    account: str
    arguments: tuple[str, ...]
    certificate_secret: str
    init_container: str
    """The template of the container that holds workers back."""


def synthesise(cluster_file: Path, folder: Path, *, quiet: bool = False) -> None:
    """Write the manifests of a project, findings going to stderr as `python -m charts` has them.

    Quietly, they do so only where the manifests cannot be written.
    """
    # A process of its own: this package knows no chart, and cdk8s starts a Node.
    done = subprocess.run(
        [sys.executable, "-m", "charts"],
        cwd=ROOT,
        env={
            **os.environ,
            "CLUSTER_CONFIG": str(cluster_file.resolve()),
            "CDK8S_OUTDIR": str(folder),
        },
        stdout=sys.stderr,
        stderr=subprocess.PIPE if quiet else None,
        check=False,
    )
    if done.returncode:
        sys.stderr.write((done.stderr or b"").decode(errors="replace"))
        raise SynthesisError("the manifests cannot be written")


def read(folder: Path) -> list[Object]:
    """Return the objects of a folder in the order of application."""
    return [each for file in sorted(folder.glob("*.yaml")) for each in read_file(file)]


def read_file(file: Path) -> list[Object]:
    """Return the objects of one file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = yaml.load_all(file.read_text(encoding="utf-8"), loader)
    return [document for document in documents if document]


def operator_file(folder: Path) -> Path:
    """Return the file with the operator's chart among those of a platform."""
    (file,) = folder.glob(f"*-{_OPERATOR}.k8s.yaml")
    return file


def operator_process(chart: "list[Object]", webhook_port: int) -> OperatorProcess:
    """Take the operator's chart apart; everything but the Deployment stays what it is."""
    deployment = _only(chart, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (secret,) = (volume["secret"] for volume in pod["volumes"] if "secret" in volume)
    (template,) = (volume["configMap"] for volume in pod["volumes"] if "configMap" in volume)
    (init_container,) = _only(chart, "ConfigMap", template["name"])["data"].values()
    return OperatorProcess(
        objects=tuple(
            _redirected(each, webhook_port) for each in chart if each["kind"] != "Deployment"
        ),
        namespace=deployment["metadata"]["namespace"],
        account=pod["serviceAccountName"],
        arguments=tuple(pod["containers"][0]["args"]),
        certificate_secret=secret["secretName"],
        init_container=init_container,
    )


def _redirected(manifest: Object, port: int) -> Object:
    """Let the API server find the webhook where it listens.

    Only fields are added that the chart leaves open, so that applying the chart again, as people
    do, takes nothing away.
    """
    changed = copy.deepcopy(manifest)
    if manifest["kind"] == "Service":
        # Not `clientConfig.url`: the certificate has the Service's name and no address in it.
        changed["spec"] |= {"type": "ExternalName", "externalName": "127.0.0.1"}
    for webhook in changed.get("webhooks", ()):
        webhook["clientConfig"]["service"]["port"] = port
    return changed


def _only(manifests: "list[Object]", kind: str, name: str = _OPERATOR) -> Object:
    (found,) = (
        each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return found
