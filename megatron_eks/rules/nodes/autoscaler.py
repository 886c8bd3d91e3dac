"""Rules over the cluster autoscaler's own arguments, and the cluster that they name."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_IMAGE = re.compile(r"(^|/)cluster-autoscaler(-(amd64|arm64))?([:@]|$)")
_LEFT = re.compile(r"<[^>]*>|YOUR[ _-]CLUSTER", re.IGNORECASE)
_GROUP = re.compile(r"--?nodes=([0-9]+):([0-9]+):(.+)")
_TAGS = re.compile(r"asg:tag=.+")
_FLAG = re.compile(r"--?(?P<name>[a-z0-9-]+)(?:=(?P<value>.*))?", re.DOTALL)
# A cloud that is named, groups of another one, and what nobody can read.
_OTHERS = re.compile(r"cloud-provider|\b(mig|label|clusterapi):|\$[({]|\{\{")
# cluster-autoscaler, FAQ.md, "What are the parameters to CA?": those that are durations.
_TIMES = (
    *("scale-down-unneeded-time", "scale-down-unready-time", "scale-down-delay-after-add"),
    *("scale-down-delay-after-delete", "scale-down-delay-after-failure", "scan-interval"),
    *("max-node-provision-time", "new-pod-scale-up-delay", "unremovable-node-recheck-timeout"),
)
_TIME = re.compile(r"0|([0-9.]+(ns|us|ms|s|m|h))+")
_CLOUD, _DISCOVERY, _EXPANDER = "cloud-provider", "node-group-auto-discovery", "expander"
# What people take for the name of AWS's provider (cloudprovider/builder/cloud_provider_builder.go
# has `aws` alone for it).
_AWS = frozenset({"amazon", "amazonaws", "aws-eks", "awseks", "ec2", "eks", "external"})
_EXPANDERS = ("grpc", "least-nodes", "least-waste", "most-pods", "price", "priority", "random")
# Flags for AWS (cluster-autoscaler's config/flags/flags.go, 01ea19e5 of 2025), those of its log and
# its election, and some that older releases have.
_NAMES = """
add-dir-header address alsologtostderr async-node-groups aws-use-static-instance-list
balance-similar-node-groups balancing-ignore-label balancing-label
blocking-system-pod-distruption-timeout bypassed-scheduler-names
capacity-buffer-controller-enabled capacity-buffer-pod-injection-enabled
check-capacity-batch-processing check-capacity-processor-instance
check-capacity-provisioning-request-batch-timebox
check-capacity-provisioning-request-max-batch-size cloud-config cloud-provider cluster-name
cluster-snapshot-parallelism cordon-node-before-terminating cores-total
daemonset-eviction-for-empty-nodes daemonset-eviction-for-occupied-nodes
debugging-snapshot-enabled drain-priority-config dynamic-node-delete-delay-after-taint-enabled
emit-per-nodegroup-metrics enable-csi-node-aware-scheduling enable-dynamic-resource-allocation
enable-proactive-scaleup enable-provisioning-requests enforce-node-group-min-size estimator
expander expendable-pods-priority-cutoff feature-gates force-delete-failed-nodes
force-delete-unregistered-nodes force-ds frequent-loops-enabled gpu-total grpc-expander-cert
grpc-expander-url ignore-daemonsets-utilization ignore-mirror-pods-utilization ignore-taint
initial-node-group-backoff-duration kube-api-content-type kube-client-burst kube-client-qps
kubeconfig kubernetes leader-elect leader-elect-lease-duration leader-elect-renew-deadline
leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace
leader-elect-retry-period log-backtrace-at log-dir log-file logging-format logtostderr
max-allocatable-difference-ratio max-binpacking-time max-bulk-soft-taint-count
max-bulk-soft-taint-time max-drain-parallelism max-empty-bulk-delete max-failing-time
max-free-difference-ratio max-graceful-termination-sec max-inactivity
max-node-group-backoff-duration max-node-provision-time max-nodegroup-binpacking-duration
max-nodes-per-scaleup max-nodes-total max-pod-eviction-time max-scale-down-parallelism
max-total-unready-percentage memory-difference-ratio memory-total min-replica-count namespace
new-pod-scale-up-delay node-autoprovisioning-enabled node-delete-delay-after-taint
node-deletion-batcher-interval node-deletion-candidate-ttl node-deletion-delay-timeout
node-group-auto-discovery node-group-backoff-reset-timeout node-info-cache-expire-time nodes
ok-total-unready-count one-output parallel-drain parallel-scale-up pod-injection-limit
predicate-parallelism profiling provisioning-request-initial-backoff-time
provisioning-request-max-backoff-cache-size provisioning-request-max-backoff-time
record-duplicated-events regional scale-down-candidates-pool-min-count
scale-down-candidates-pool-ratio scale-down-delay-after-add scale-down-delay-after-delete
scale-down-delay-after-failure scale-down-delay-type-local scale-down-enabled
scale-down-gpu-utilization-threshold scale-down-non-empty-candidates-count
scale-down-simulation-timeout scale-down-unneeded-time scale-down-unready-enabled
scale-down-unready-time scale-down-utilization-threshold scale-from-unschedulable
scale-up-from-zero scan-interval scheduler-config-file skip-headers skip-log-headers
skip-nodes-with-custom-controller-pods skip-nodes-with-local-storage skip-nodes-with-system-pods
startup-taint status-config-map-name status-taint stderrthreshold unremovable-node-recheck-timeout
user-agent v vmodule write-status-configmap
"""
_FLAGS = frozenset(_NAMES.split())
_CLOSE = 0.9
_OF_A_CLUSTER = re.compile(r"(?:[=,]|^)k8s\.io/cluster-autoscaler/([A-Za-z0-9][\w-]*)(?=[,=]|$)")
_NO_NAMES = ("enabled", "disabled", "node-template")


def arguments(manifest: Manifest) -> Iterator[Finding]:
    """Require of the autoscaler its cloud, flags that it has, and the groups that it looks after.

    Cluster autoscaler, cloudprovider/aws/README.md: it finds groups by the tags of this cluster's
    name, or is given MIN:MAX:NAME; its example has a name to replace. Its FAQ: the provider is
    `gce` where none is named, and flags and expanders that it does not know end it at its start.
    """
    for container in _autoscalers(manifest):
        flags = list(_flags(container))
        for path, name, value in flags:
            wrong = _wrong(name, value)
            if wrong is not None:
                yield manifest.find(Code.MANIFEST_VALUE, path[1:], *wrong)
        if flags and not _OTHERS.search(container.line):
            found = "no --cloud-provider: the autoscaler takes Google's, and does not start"
            place = flags[0][0][1:]
            yield manifest.find(Code.MANIFEST_VALUE, place, found, "add --cloud-provider=aws")


def _autoscalers(manifest: Manifest) -> Iterator[Container]:
    for pod in manifest.pods:
        for container in pod.containers:
            if _IMAGE.search(str(container.body.get("image"))):
                yield container


def clusters(together: ManifestSet) -> Iterator[Found]:
    """Warn of an autoscaler that looks for another cluster than the one that stands beside it.

    Cluster autoscaler, cloudprovider/aws/README.md, auto-discovery: groups have a tag with their
    cluster's name, and AWS_REGION says where it looks; else it scales nothing.
    """
    for manifest in together.objects:
        beside = [each for each in together.of("ClusterConfig") if is_near(manifest, each)]
        metadata = [mapping(each.body.get("metadata")) or {} for each in beside]
        names = [text(each.get("name")) for each in metadata]
        places = [text(each.get("region")) for each in metadata]
        for container in _autoscalers(manifest) if names else ():
            for path, name, value in _flags(container):
                asked = _OF_A_CLUSTER.findall(value or "")
                known = [each for each in asked if each not in _NO_NAMES]
                if name == _DISCOVERY and known and not {*known} & {*names}:
                    found = f"{shown(known[0])}, and the cluster beside it is {shown(names[0])}: "
                    found += "it finds no group, and scales nothing"
                    yield _beside(manifest, path[1:], found, f"write {names[0]}")
            for each in container.variables:
                region = each.value or ""
                if each.name == "AWS_REGION" and region and region not in places:
                    if is_placeholder(region) or None in places:
                        continue
                    found = f"{shown(region)}, and the cluster beside it is in {places[0]}"
                    path = (*container.path[1:], "env", each.index)
                    yield _beside(manifest, path, found, f"write {places[0]}")


def _beside(manifest: Manifest, path: Path, found: str, remedy: str) -> Found:
    return manifest, manifest.find(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def _flags(container: Container) -> Iterator[tuple[Path, str, str | None]]:
    """Return each flag with its value, which may be the next word."""
    words = list(container.words)
    for index, (path, word) in enumerate(words):
        match = _FLAG.fullmatch(word)
        if match is None:
            continue
        follows = words[index + 1][1] if index + 1 < len(words) else "-"
        value = match["value"]
        yield path, match["name"], follows if value is None and follows[:1] != "-" else value


def _wrong(name: str, value: str | None) -> tuple[str, str] | None:
    close = get_close_matches(name, _FLAGS, 1, _CLOSE)
    if name not in _FLAGS and close:
        found = f"the autoscaler has no flag {shown(f'--{name}')}, and does not start"
        return found, f"did you mean --{close[0]}?"
    said = value or ""
    if name == _CLOUD and (said.lower() in _AWS or (said.lower() == "aws" and said != "aws")):
        return f"no cloud is called {shown(said)}: the autoscaler does not start", "write aws"
    if name == _EXPANDER:
        for each in said.split(","):
            if each and each not in _EXPANDERS and not is_placeholder(each):
                return f"no expander {shown(each)}: it does not start", choices(each, _EXPANDERS)
    if name == _DISCOVERY or name in _TIMES:
        return _discovery(said) if name == _DISCOVERY else _time(said)
    group = _GROUP.fullmatch(f"--{name}={said}")
    if group and (number(group[1]) or 0) > (number(group[2]) or 0):
        return f"at least {group[1]} and at most {group[2]} nodes", "write MIN:MAX:NAME"
    return None


def _time(value: str) -> tuple[str, str] | None:
    if not value or _TIME.fullmatch(value) or is_placeholder(value):
        return None
    found = f"{shown(value)} is no time as Go's flags take it: the autoscaler does not start"
    return found, f"write {value}m" if value.isdigit() else "write it like 10m"


def _discovery(value: str) -> tuple[str, str] | None:
    left = _LEFT.search(value)
    if left is not None:
        found = f"{shown(left[0])} is to be replaced: it finds no group"
        return found, "write the cluster's name"
    blank = next((each for each in value.split(",") if each != each.strip()), None)
    if blank is not None and not is_placeholder(value):
        # parseASGAutoDiscoverySpec splits at commas and strips nothing (autoscaler, issue 1854).
        found = f"{shown(blank)} has a blank, as no tag of a group has: it finds no group"
        return found, "write the tags on one line, without blanks"
    if not _TAGS.fullmatch(value) and value.startswith("asg"):
        return f"{shown(value)} is no way to find groups on AWS", "write asg:tag=KEY,KEY"
    return None
