"""Rules over what becomes of data and secrets: reclaiming, tokens, bounds of jobs."""

import base64
import binascii
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.quantity import quantity
from megatron_eks.rules.secret_words import kind_of_secret
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Manifest

_FSX = "fsx.csi.aws.com"
_PROVISIONERS = (
    *(_FSX, "ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com", "efs.csi.aws.com"),
    *("fsx.openzfs.csi.aws.com", "s3.csi.aws.com"),
)
_CLOSE = 0.78


def reclaiming(manifest: Manifest) -> Iterator[Finding]:
    """Warn of volumes whose data go with their claim, and refuse claims without a size.

    Kubernetes, "Persistent Volumes", reclaiming; aws-fsx-csi-driver: a class makes a file system
    for each claim, and its default policy deletes it again.
    """
    if manifest.kind == "PersistentVolumeClaim":
        requests = mapping((mapping(manifest.spec.get("resources")) or {}).get("requests"))
        whole = not is_absent(manifest.spec.get("accessModes"))  # and no part of one, for Kustomize
        if whole and requests is not None and is_absent(requests.get("storage")):
            found = "no size, which the API server demands of every claim"
            path: Path = ("spec", "resources", "requests", "storage")
            yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, "write it, such as 1200Gi")
    driver = text((mapping(manifest.spec.get("csi")) or {}).get("driver"))
    deletes = manifest.spec.get("persistentVolumeReclaimPolicy") == "Delete"
    if manifest.kind == "PersistentVolume" and driver == _FSX and deletes:
        found = "the file system and all checkpoints on it are deleted with the claim"
        yield _lost(manifest, ("spec", "persistentVolumeReclaimPolicy"), found)
    recycles = manifest.spec.get("persistentVolumeReclaimPolicy") == "Recycle"
    if manifest.kind == "PersistentVolume" and driver and recycles:
        found = "Recycle, which volumes of a CSI driver do not have: given back, it ends as Failed"
        place = ("spec", "persistentVolumeReclaimPolicy")
        yield manifest.find(Code.CLAIM_AND_VOLUME, place, found, "write Retain", Level.WARNING)
    if manifest.kind == "StorageClass":
        yield from _class(manifest)


def _class(manifest: Manifest) -> Iterator[Finding]:
    provisioner = text(manifest.body.get("provisioner")) or ""
    close = get_close_matches(provisioner, _PROVISIONERS, 2, _CLOSE)
    # The other driver of that name is there in Auto Mode alone.
    close.sort(key=lambda each: not each.endswith(".csi.aws.com"))
    if close and provisioner not in _PROVISIONERS:
        found, remedy = f"unknown driver {shown(provisioner)}", f"did you mean {close[0]}?"
        yield manifest.find(Code.CLAIM_AND_VOLUME, ("provisioner",), found, remedy)
    policy = manifest.body.get("reclaimPolicy")
    # Whoever asks for scratch space, and for its end, means both.
    kind = text((mapping(manifest.body.get("parameters")) or {}).get("deploymentType")) or ""
    meant = policy == "Delete" and kind.startswith("SCRATCH")
    if provisioner == _FSX and not meant and (is_absent(policy) or policy == "Delete"):
        found = "each claim makes a file system, which is deleted with the claim, its data with it"
        yield _lost(manifest, ("reclaimPolicy",), found)


def _lost(manifest: Manifest, path: "tuple[str, ...]", found: str) -> Finding:
    return manifest.find(Code.RECLAIMED, path, found, "set it to Retain", Level.WARNING)


def tokens(manifest: Manifest) -> Iterator[Finding]:
    """Refuse tokens of known services in Secrets and ConfigMaps of a repository, and broken base64.

    EKS Best Practices, "Data encryption and secrets management"; Kubernetes, "Secrets".
    """
    if manifest.kind not in {"ConfigMap", "Secret"}:
        return
    for key in ("data", "stringData"):
        for name, value in (mapping(manifest.body.get(key)) or {}).items():
            written = text(value) or ""
            if manifest.kind == "Secret" and key == "data" and not is_placeholder(written):
                # Go's decoder, which the API server uses, passes over the ends of lines.
                whole = written.replace("\r", "").replace("\n", "")
                try:
                    written = base64.b64decode(whole, validate=True).decode(errors="replace")
                except (binascii.Error, ValueError):
                    found = "not base64, which the API server demands under data"
                    remedy = "write it under stringData, or encode it"
                    yield manifest.find(Code.MANIFEST_VALUE, (key, name), found, remedy)
                    continue
            kind = kind_of_secret(written)
            if kind:
                found = f"{shown(name)} holds {kind}"
                remedy = "make it in the cluster, not in a file, and make this one invalid"
                yield manifest.find(Code.SECRET_IN_MANIFEST, (key, name), found, remedy)


def quota_amounts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse quotas over amounts that are none.

    Kubernetes, "Resource Quotas" and "Quantity".
    """
    if manifest.kind != "ResourceQuota":
        return
    for name, value in (mapping(manifest.spec.get("hard")) or {}).items():
        written = text(value)
        if quantity(value) is None and not (written and is_placeholder(written)):
            remedy, path = "write a number, or one like 64Gi", ("spec", "hard", name)
            yield manifest.find(Code.BAD_QUANTITY, path, f"{shown(value)} is no quantity", remedy)


def elastic_bounds(manifest: Manifest) -> Iterator[Finding]:
    """Refuse elastic bounds that no number of pods meets, and warn of ranks that come and go.

    kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/elastic.go: PET_NNODES is both bounds;
    hpa.go: metrics make a HorizontalPodAutoscaler, and each change restarts all ranks.
    """
    if manifest.pytorch_replicas is None:
        return
    elastic = mapping(manifest.spec.get("elasticPolicy")) or {}
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    pods = sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)
    scaled = bool(items(elastic.get("metrics")))
    path: tuple[str, ...] = ("spec", "elasticPolicy")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        found, remedy = f"minReplicas {least} above maxReplicas {most}", "let the first be less"
        yield manifest.find(Code.ELASTIC_BOUNDS, path, found, remedy)
    # The operator makes one of the two of the other, and only an autoscaler changes the pods.
    elif isinstance(least, int) and manifest.pods and least > pods > 0 and not scaled:
        found = f"minReplicas {least}, and the job has {pods}: torchrun waits for more"
        remedy = f"write {pods} or less, or more replicas"
        yield manifest.find(Code.ELASTIC_BOUNDS, (*path, "minReplicas"), found, remedy)
    elif isinstance(most, int) and manifest.pods and most < pods:
        found = f"maxReplicas {most}, and the job has {pods}: some of them have no place"
        remedy = f"write {pods} or more, or fewer replicas"
        yield manifest.find(Code.ELASTIC_BOUNDS, (*path, "maxReplicas"), found, remedy)
    if items(elastic.get("metrics")) and any(pod.names(GPU) for pod in manifest.pods):
        found = "an autoscaler adds and takes workers by these, and all ranks start again each time"
        path = ("spec", "elasticPolicy", "metrics")
        yield manifest.find(Code.ELASTIC_BOUNDS, path, found, "remove it", Level.WARNING)
