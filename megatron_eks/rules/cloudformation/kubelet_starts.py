"""Rules over what user data gives the kubelet: labels that it may not set, values of its file."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.node_configs import read_config
from megatron_eks.rules.node_start import user_data_of
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.user_data_parts import nodeadm_parts
from megatron_eks.rules.values import mapping, shown

_TAINTS = re.compile(r"--register-with-taints[= ]+[\"']?(?P<taints>[^\s\"'\\]+)")
_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_LABELS = re.compile(r"--node-labels[= ]+[\"']?(?P<labels>[^\s\"'\\]+)")
# kubernetes, pkg/kubelet/apis/well_known_labels.go: what a kubelet may say of its node.
_ALLOWED = re.compile(
    r"([a-z0-9.-]+\.)?(kubelet|node)\.kubernetes\.io/.+"
    r"|(beta\.)?kubernetes\.io/(arch|hostname|instance-type|os)"
    r"|(failure-domain\.beta|topology)\.kubernetes\.io/(region|zone)"
)
_RESERVED = re.compile(r"([a-z0-9.-]+\.)?(kubernetes|k8s)\.io/.+")
# Kubernetes, "Kubelet Configuration (v1beta1)": whole numbers, and values of truth.
_WHOLE = frozenset(
    {
        *("eventBurst", "eventRecordQPS", "imageGCHighThresholdPercent", "kubeAPIBurst"),
        *("imageGCLowThresholdPercent", "kubeAPIQPS", "maxOpenFiles", "maxParallelImagePulls"),
        *("maxPods", "podPidsLimit", "podsPerCore", "registryBurst", "registryPullQPS"),
    }
)
_TRUTHS = frozenset({"failSwapOn", "protectKernelDefaults", "serializeImagePulls"})
_OTHERS = (
    *("allowedUnsafeSysctls", "clusterDNS", "containerLogMaxFiles", "containerLogMaxSize"),
    *("cpuCFSQuota", "cpuManagerPolicy", "cpuManagerPolicyOptions", "evictionHard"),
    *("evictionSoft", "evictionSoftGracePeriod", "featureGates", "kubeReserved", "maxPods"),
    *("memoryManagerPolicy", "reservedMemory", "reservedSystemCPUs", "shutdownGracePeriod"),
    *("shutdownGracePeriodCriticalPods", "systemReserved", "topologyManagerPolicy"),
    *("topologyManagerPolicyOptions", "topologyManagerScope"),
)
_KIND = "NodeConfig"


def labels(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse labels of a node that the kubelet may not set.

    Kubernetes, "kubelet", --node-labels, and KEP 279: of kubernetes.io and k8s.io a few alone are
    allowed, and the kubelet does not start with another ("unknown 'kubernetes.io' or 'k8s.io'
    labels specified").
    """
    for template in launch_templates(templates):
        for match in _LABELS.finditer(user_data_of(template) or ""):
            for label in match["labels"].split(","):
                key = label.partition("=")[0]
                if "$" not in key and _RESERVED.fullmatch(key) and not _ALLOWED.fullmatch(key):
                    found = f"the kubelet may not give its node a label {shown(key)}: it does not "
                    found += "start, and no node joins"
                    remedy = "use a prefix of your own, or kubectl label"
                    path = (DATA, "UserData")
                    yield template.resource.find(Code.USER_DATA, path, found, remedy)


def values(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a NodeConfig's kubelet settings the kinds that the kubelet reads.

    Kubernetes, "Kubelet Configuration (v1beta1)": a number in quotes is no number, and the kubelet
    does not start.
    """
    for template in launch_templates(templates):
        for body in nodeadm_parts(user_data_of(template) or ""):
            spec = mapping((read_config(body) or {}).get("spec")) or {}
            kubelet = mapping(spec.get("kubelet")) or {}
            for key, value in (mapping(kubelet.get("config")) or {}).items():
                wanted = _wanted(key, value)
                if wanted is not None:
                    found = f"kubelet.config.{key}: {shown(value)}, which is not {wanted}: the "
                    found += "kubelet does not start"
                    path = (DATA, "UserData")
                    remedy = f"write {wanted} without quotes"
                    yield template.resource.find(Code.USER_DATA, path, found, remedy)


def kinds(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a NodeConfig a list of flags, and the kubelet's own names of settings.

    amazon-eks-ami, nodeadm, "API" (v1alpha1, KubeletOptions); Kubernetes, "Kubelet Configuration
    (v1beta1)", of which the kubelet passes over or refuses a name in other letters.
    """
    for template in launch_templates(templates):
        for body in nodeadm_parts(user_data_of(template) or ""):
            for found, remedy in _misnamed(read_config(body) or {}):
                path = (DATA, "UserData")
                yield template.resource.find(Code.USER_DATA, path, found, remedy)


def _misnamed(config: "dict[str, Json]") -> Iterator[tuple[str, str]]:
    kubelet = mapping((mapping(config.get("spec")) or {}).get("kubelet")) or {}
    flags = kubelet.get("flags")
    if isinstance(flags, str) and "$" not in flags:
        yield "kubelet.flags as a text, and nodeadm takes a list", f"write [{flags}]"
    known = {each.lower(): each for each in (*_WHOLE, *_TRUTHS, *_OTHERS)}
    for key in mapping(kubelet.get("config")) or {}:
        own = known.get(key.lower())
        if own is not None and own != key:
            yield f"kubelet.config.{key}: the kubelet has no such setting", f"write {own}"


def _wanted(key: str, value: Json) -> str | None:
    if isinstance(value, str) and "$" in value:
        return None
    if key in _WHOLE and (isinstance(value, bool) or not isinstance(value, int)):
        return "a whole number"
    return "true or false" if key in _TRUTHS and not isinstance(value, bool) else None


def taints(templates: TemplateSet) -> Iterator[Finding]:
    """Require of taints that the kubelet registers an effect that Kubernetes has.

    Kubernetes, "kubelet", --register-with-taints: KEY=VALUE:EFFECT; the kubelet does not start with
    another effect ("invalid taint effect").
    """
    for template in launch_templates(templates):
        met = _TAINTS.search(user_data_of(template) or "")
        for taint in met["taints"].split(",") if met else ():
            effect = taint.rpartition(":")[2]
            if "$" not in taint and effect not in _EFFECTS:
                found = f"{shown(taint)} has no effect that Kubernetes knows: the kubelet does not "
                found += "start, and no node joins"
                remedy = f"write KEY=VALUE:EFFECT; {choices(effect, _EFFECTS)}"
                place = (DATA, "UserData")
                yield template.resource.find(Code.USER_DATA, place, found, remedy)
