"""Rules over what becomes of jobs and their pods: runs that overlap, remain, or go too early."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import is_absent, mapping, number
from megatron_eks.rules.workloads import GPU, Manifest

_OF_THE_SYSTEM = ("system-cluster-critical", "system-node-critical")
_KEEPING = ("karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict")
_OWN = 2
_TRAINS = re.compile(r"train", re.IGNORECASE)
_SERVES = re.compile(r"serv|infer|api|vllm|tensorboard", re.IGNORECASE)
_LONG_LIVED = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})


def overlapping(manifest: Manifest) -> Iterator[Finding]:
    """Warn of scheduled runs that take GPUs while an earlier one still has them.

    Kubernetes, "CronJob", concurrencyPolicy: Allow, the default, starts one beside the other.
    """
    if (manifest.group, manifest.kind) != ("batch", "CronJob"):
        return
    policy = manifest.spec.get("concurrencyPolicy")
    if (is_absent(policy) or policy == "Allow") and any(pod.names(GPU) for pod in manifest.pods):
        found = (
            "a run that takes longer than the interval gets another one beside it, with its GPUs"
        )
        path, remedy = ("spec", "concurrencyPolicy"), "use Forbid"
        yield manifest.find(Code.JOB_FIELDS, path, found, remedy, Level.WARNING)


def gone_at_once(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a job that is deleted as it ends, with the logs that say why.

    Kubernetes, "Automatic Cleanup for Finished Jobs": 0 makes it eligible at once, and its pods go
    with it.
    """
    policy = mapping(manifest.spec.get("runPolicy")) or {}
    for holder, path in ((manifest.spec, ("spec",)), (policy, ("spec", "runPolicy"))):
        if manifest.is_job and number(holder.get("ttlSecondsAfterFinished")) == 0:
            found = "the job goes with its pods and logs as soon as it ends, also when it fails"
            place, remedy = (*path, "ttlSecondsAfterFinished"), "use 86400, a day"
            yield manifest.find(Code.IDLE, place, found, remedy, Level.WARNING)


def mpi_leftovers(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an MPIJob's workers that keep their GPUs, and of a launcher that takes some.

    kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/default.go: cleanPodPolicy is None, and workers
    run sshd until somebody deletes them; the launcher starts ranks on the workers alone.
    """
    if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob"):
        return
    policy = mapping(manifest.spec.get("runPolicy")) or {}
    given = policy.get("cleanPodPolicy", manifest.spec.get("cleanPodPolicy"))
    workers = [pod for pod in manifest.pods if "Worker" in pod.path]
    launchers = [pod for pod in manifest.pods if "Launcher" in pod.path]
    if (is_absent(given) or given == "None") and any(pod.names(GPU) for pod in workers):
        found = "workers keep running, with their GPUs, when the launcher has ended"
        path, remedy = ("spec", "runPolicy", "cleanPodPolicy"), "set it to Running"
        yield manifest.find(Code.CLEAN_POD_POLICY, path, found, remedy, Level.WARNING)
    ranked = bool(manifest.spec.get("runLauncherAsWorker"))
    for pod in launchers if workers and not ranked else ():
        if pod.names(GPU) and any(worker.names(GPU) for worker in workers):
            found = "GPUs for the launcher, on which no rank runs: they idle"
            remedy = "ask for none there, or set runLauncherAsWorker: true"
            yield Finding(Code.NODE_ROOM, (*pod.path, "containers"), found, remedy, Level.WARNING)


def kept_alive(manifest: Manifest) -> Iterator[Finding]:
    """Warn of training that a Deployment starts again when it is done.

    Kubernetes, "Deployments" and "StatefulSets": only restartPolicy Always is allowed, so no pod of
    them ever ends; it is what a lone pod has as well where it says nothing.
    """
    always = manifest.spec.get("restartPolicy", "Always") == "Always"
    lone = (manifest.group, manifest.kind) == ("", "Pod") and always
    if manifest.kind not in _LONG_LIVED and not lone:
        return
    for pod in manifest.pods:
        for container in pod.containers:
            line = container.line
            trains = container.has_launcher and container.names(GPU) and _TRAINS.search(line)
            if trains and not _SERVES.search(line) and not container.is_init:
                found = f"a {manifest.kind} starts it again when it has ended, from its beginning"
                path, remedy = (*container.path, "command"), "use a Job or a PyTorchJob"
                if lone:
                    found = "a pod starts it again when it has ended, unless it says otherwise"
                    remedy = "write restartPolicy: Never"
                yield Finding(Code.NEVER_ENDS, path, found, remedy, Level.WARNING)


def kept_elsewhere(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an annotation that keeps pods where they are, and stands at their owner.

    Karpenter, "Disruption", pod-level controls, and kubernetes/autoscaler, FAQ: both read pods, and
    controllers give them the annotations of the template alone.
    """
    notes = mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}
    pods = [pod for pod in manifest.pods if pod.names(GPU)]
    for key in _KEEPING:
        # A Pod itself has its annotations where it should.
        lacking = [pod for pod in pods if key not in pod.annotations and len(pod.path) > _OWN]
        if key in notes and lacking:
            found = (
                f"on the {manifest.kind}, and read from pods alone: they may be moved in their run"
            )
            path = ("metadata", "annotations", key)
            place = ".".join(str(each) for each in lacking[0].path[1:-1])
            remedy = f"write it under {place}.metadata.annotations"
            yield manifest.find(Code.WRONG_VALUE, path, found, remedy, Level.WARNING)


def never_pulled(manifest: Manifest) -> Iterator[Finding]:
    """Warn of images of a registry that no node pulls.

    Kubernetes, "Images", imagePullPolicy Never: a node that has not got it ends the start with
    ErrImageNeverPull, and nodes with GPUs come new.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = str(container.body.get("image") or "")
            outside = "." in image.partition("/")[0] and "/" in image
            if container.body.get("imagePullPolicy") == "Never" and outside and pod.names(GPU):
                found = "Never, and a new node has not got the image: the pod does not start"
                path = (*container.path, "imagePullPolicy")
                remedy = "use IfNotPresent"
                yield Finding(Code.REFUSED_IN_POD, path, found, remedy, Level.WARNING)


def of_the_system(manifest: Manifest) -> Iterator[Finding]:
    """Warn of training with the priority of the nodes' own parts.

    Kubernetes, "Guaranteed Scheduling For Critical Add-On Pods": it ends the pods of device
    plugins, storage and network on a full node, without which it cannot run.
    """
    for pod in manifest.pods if manifest.is_job else ():
        name = pod.spec.get("priorityClassName")
        if name in _OF_THE_SYSTEM and pod.names(GPU):
            found = f"{name}: training may end the plugins and drivers that it needs"
            path = (*pod.path, "priorityClassName")
            remedy = "make a class of its own, below 1000000000"
            yield Finding(Code.PRIORITY_ORDER, path, found, remedy, Level.WARNING)
