"""Rules over what EKS runs in kube-system: CoreDNS's Corefile, and the VPC CNI's own networks."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import pools_of
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text, truth
from megatron_eks.rules.workloads import Manifest

_FORWARD = re.compile(r"^\s*forward\s+\.\s+(.+)$", re.MULTILINE)
# CoreDNS fills in {$NAME} and {%NAME%} itself.
_ENVIRONMENT = re.compile(r"\{\$\w+\}|\{%\w+%\}")
# EKS User Guide, KubernetesNetworkConfigRequest: the two ranges of Services, with DNS at their .10.
_DNS = ("10.100.0.10", "172.20.0.10")
# CoreDNS, notes of 1.5.0 and 1.7.0: plugins that were taken out.
_GONE = {
    "federation": "remove its line",
    "proxy": "write forward . /etc/resolv.conf",
}
_ZONE = "topology.kubernetes.io/zone"
_SUBNET, _GROUP = re.compile(r"subnet-[0-9a-zA-Z]+"), re.compile(r"sg-[0-9a-zA-Z]+")
_OF_ZONES = (_ZONE, "failure-domain.beta.kubernetes.io/zone")


def loops(together: ManifestSet) -> Iterator[Found]:
    """Refuse that CoreDNS asks itself.

    CoreDNS, plugin loop: it stops with "Loop detected"; without that plugin, queries go round until
    its memory is used up.
    """
    own = {
        address
        for each in together.of("Service")
        if (each.namespace, each.name) == ("kube-system", "kube-dns")
        and (address := text(each.spec.get("clusterIP"))) is not None
    }
    for config in together.of("ConfigMap"):
        data = mapping(config.body.get("data")) or {}
        written = text(data.get("Corefile")) or ""
        # A cache on the node forwards to the cluster's DNS as it should.
        answers = config.name == "coredns" or "kubernetes cluster.local" in written
        for met in _FORWARD.finditer(written) if answers else ():
            itself = [each for each in met[1].split() if each in own or each in _DNS]
            if itself:
                found = f"CoreDNS forwards to {itself[0]}, which is itself: no name is found"
                path: Path = ("data", "Corefile")
                remedy = "write forward . /etc/resolv.conf"
                yield config, config.find(Code.MANIFEST_VALUE, path, found, remedy)


def core_files(manifest: Manifest) -> Iterator[Finding]:
    """Require of CoreDNS's own Corefile whole blocks, and the plugin that knows Services.

    CoreDNS, "Configuration" and plugin kubernetes: it stops at a brace too many or too few, and
    without the plugin no name of a Service or a pod is found in the cluster.
    """
    where = (manifest.kind, manifest.name, manifest.namespace)
    written = text((mapping(manifest.body.get("data")) or {}).get("Corefile"))
    if where != ("ConfigMap", "coredns", "kube-system") or written is None:
        return
    # What is imported is in another file.
    if is_placeholder(_ENVIRONMENT.sub("", written)) or re.search(
        r"^\s*import ", written, re.MULTILINE
    ):
        return
    path: Path = ("data", "Corefile")
    lines = [line.partition("#")[0].split() for line in written.splitlines()]
    gone = next((line[0] for line in lines if line and line[0] in _GONE), None)
    if gone is not None:
        found = f"CoreDNS has no plugin {gone} any more: it does not start with it"
        yield manifest.find(Code.MANIFEST_VALUE, path, found, _GONE[gone])
    depth, least = 0, 0
    for word in (word for line in lines for word in line):
        depth += (word == "{") - (word == "}")
        least = min(least, depth)
    if depth or least:
        many = "}" if depth < 0 or least < 0 else "{"
        found = f"one {shown(many)[1:-1]} too many: CoreDNS does not start with it"
        yield manifest.find(Code.MANIFEST_VALUE, path, found, "close each block once")
    elif not any(line[0] == "kubernetes" for line in lines if line):
        found = "no plugin kubernetes: no name of a Service or a pod is found"
        remedy = "add kubernetes cluster.local in-addr.arpa ip6.arpa { ... }"
        yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy)


def own_networks(manifest: Manifest) -> Iterator[Finding]:
    """Require of an ENIConfig the IDs of a subnet and of security groups.

    aws/amazon-vpc-cni-k8s, README, AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG: with others EC2 makes no
    interface, and pods get no address.
    """
    if manifest.kind != "ENIConfig" or manifest.group != "crd.k8s.amazonaws.com":
        return
    groups = items(manifest.spec.get("securityGroups")) or []
    given: list[tuple[Path, str | None, re.Pattern[str], str]] = [
        (("spec", "subnet"), text(manifest.spec.get("subnet")), _SUBNET, "subnet-..."),
        *(
            (("spec", "securityGroups", index), text(each), _GROUP, "sg-...")
            for index, each in enumerate(groups)
        ),
    ]
    for path, said, form, shape in given:
        if said is not None and not form.fullmatch(said) and not is_placeholder(said):
            found = f"{shown(said)} is no ID that EC2 takes here: pods get no address"
            yield manifest.find(Code.MANIFEST_VALUE, path, found, f"write {shape}")


def networks_of_pods(together: ManifestSet) -> Iterator[Found]:
    """Warn of custom networking without an ENIConfig for the zone of a pool beside it.

    EKS User Guide, "Deploy pods in alternate subnets with custom networking": the CNI takes the
    ENIConfig that bears the zone's name; without one its nodes' pods get no address.
    """
    configs = {each.name for each in together.of("ENIConfig") if each.name}
    for agent in together.of("DaemonSet"):
        if agent.name != "aws-node" or not configs:
            continue
        given = {
            each.name: each.value or ""
            for pod in agent.pods
            for container in pod.containers
            for each in container.variables
        }
        by_zone = given.get("ENI_CONFIG_LABEL_DEF") in _OF_ZONES
        if truth(given.get("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG")) is not True or not by_zone:
            continue
        for manifest in together.objects:
            missing = sorted(_zones(manifest) - configs)
            if missing:
                found = f"no ENIConfig {shown(missing[0])}: its pods get no address"
                remedy = f"there: {', '.join(sorted(configs))}"
                path = ("spec",) if manifest.spec else ()
                finding = manifest.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                yield manifest, finding


def _zones(manifest: Manifest) -> set[str]:
    """Return the zones that an object starts nodes in, as far as it names them."""
    if manifest.kind == "NodePool" and list(pools_of(manifest)):
        template = mapping(manifest.spec.get("template")) or {}
        spec = mapping(template.get("spec")) or {}
        return {
            str(zone)
            for each in items(spec.get("requirements")) or []
            if (body := mapping(each) or {}).get("key") == _ZONE and body.get("operator") == "In"
            for zone in items(body.get("values")) or []
        }
    if manifest.kind == "ClusterConfig":
        return {
            str(zone)
            for key in ("managedNodeGroups", "nodeGroups")
            for each in items(manifest.body.get(key)) or []
            for zone in items((mapping(each) or {}).get("availabilityZones")) or []
        }
    return set()
