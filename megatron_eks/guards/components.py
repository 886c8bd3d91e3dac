"""Guards of the platform: device plugins, metrics, the training operator and etcd.

Facts are those of the releases in pins.py; of the operator: main.go, pkg/cert, pkg/controller.v1.
"""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.pods import type_values
from megatron_eks.guards.values import NO, YES, Row, Value, report

_GPU, _EFA = "DaemonSet k8s-device-plugin", "DaemonSet aws-efa-k8s-device-plugin"
_METRICS, _NAME, _RECORDS = "DaemonSet dcgm-exporter", "training-operator", "job-records"
_OPERATOR, _RECORDER, _ETCD = f"Deployment {_NAME}", f"Deployment {_RECORDS}", "Deployment etcd"
_CERTIFICATE, _HOOK = f"{_NAME}-webhook-cert", "ValidatingWebhookConfiguration"
_SERVING = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 -- compiled in
_ASKED, _MEET = "webhooks 0 clientConfig service", "ranks do not meet"
_RULE, _CONFIGURATION = "webhooks 0 rules 0 ", f"validator.{_NAME}.kubeflow.org"
_PINNED = {
    _GPU: pins.NVIDIA_DEVICE_PLUGIN_IMAGE,
    _EFA: pins.efa_device_plugin_image("us-east-1"),
    _METRICS: pins.DCGM_EXPORTER_IMAGE,
}
_POD, _BOX = "spec template spec ", "spec template spec containers 0 "
_SAFE, _ENV, _ARGS = f"{_BOX}securityContext ", f"{_BOX}env name=", f"{_BOX}args "
_TYPES = f"{_POD}affinity nodeAffinity requiredDuringSchedulingIgnoredDuringExecution "
_TYPES += "nodeSelectorTerms 0 matchExpressions 0 "
_LEAST, _PROFILE = "a break-out reaches the node", "the profiling counters stay empty"
_NO_EFA, _ELSEWHERE = "the plugin cannot open EFA devices", "it runs on the wrong nodes, or none"
_METRICS_FOLDER, _NO_LIST = "/etc/dcgm-exporter/metrics", "it finds no list of counters, and stops"
_TWICE, _NO_START = "two replicas get in each other's way", "the operator does not start"
_NO_RECORD = "nothing records how pods end"
_PROGRAM, _FOLDER = "job_objects.py", f"/opt/{_RECORDS}"
_GOES_ON = "jobs that the operator would refuse are accepted, or none is"
_MEMORY: Row = (f"{_BOX}resources limits memory", (), "a leak takes the memory of the node's pods")


def _same(below: str, why: str, wanted: Mapping[str, Json]) -> list[Row]:
    return [(below + path, (value,), why) for path, value in wanted.items()]


def _mounted(name: str, path: str, kind: str | None = None, *read_only: bool) -> list[Row]:
    paths, mount = (path, path.rstrip("/")), f"{_BOX}volumeMounts name={name}"
    return [
        (f"{_POD}volumes name={name} hostPath path", paths, "the plugin looks elsewhere"),
        (f"{_POD}volumes name={name} hostPath type", (kind,), "pods wait for it, or create it"),
        (f"{mount} mountPath", paths, "the kubelet and the plugin do not meet"),
        (f"{mount} readOnly", read_only or (None,), "the plugin writes its socket there"),
    ]


def _asked(path: str, port: str | int, *probes: str) -> list[Row]:
    why = "one that hangs is not restarted, or is probed too early"
    asked = [f"{_BOX}{probe}Probe httpGet " for probe in probes]
    return [row for each in asked for row in _same(each, why, {"path": path, "port": port})]


_ONE: tuple[Row, ...] = (
    *_same("spec ", _TWICE, {"replicas": 1, "strategy type": "Recreate"}),
    ("spec template metadata annotations megatron-eks/template", (), "pods keep an old template"),
    _MEMORY,
)
_EVERY: tuple[Row, ...] = (
    (f"{_POD}priorityClassName", ("system-node-critical",), "other pods evict it"),
    (f"{_POD}tolerations key=nvidia.com/gpu effect", ("NoSchedule", None), _ELSEWHERE),
    (f"{_POD}tolerations key=nvidia.com/gpu operator", ("Exists",), _ELSEWHERE),
)
_SOCKETS = ("device-plugins", "/var/lib/kubelet/device-plugins")
_ON_GPUS: tuple[Row, ...] = (
    *_EVERY,
    (f"{_POD}nodeSelector nvidia.com/gpu.present", ("true",), _ELSEWHERE),
    *_same(_SAFE, _LEAST, {"allowPrivilegeEscalation": NO, "capabilities drop": ["ALL"]}),
)
_SETTINGS: dict[str, tuple[Row, ...]] = {
    _GPU: (
        *_ON_GPUS,
        *_mounted(*_SOCKETS, "Directory"),
        (f"{_BOX}command", (["nvidia-device-plugin"],), "the container starts no plugin"),
        (f"{_ENV}NVIDIA_VISIBLE_DEVICES value", ("all",), "the plugin sees no GPU"),
        (f"{_ENV}NVIDIA_DRIVER_CAPABILITIES value", ("compute,utility",), "it gets no driver"),
    ),
    _EFA: (
        *_EVERY,
        *_mounted(*_SOCKETS),
        *_mounted("infiniband", "/dev/infiniband/"),
        *_mounted("neuron", "/opt/aws/neuron/", "DirectoryOrCreate"),
        (f"{_TYPES}operator", ("In",), _ELSEWHERE),
        (f"{_TYPES}values 0", (), _ELSEWHERE),
        (f"{_POD}hostNetwork", (YES,), "it needs the node's network to find the interfaces"),
        *_same(_SAFE, _NO_EFA, {"privileged": YES, "allowPrivilegeEscalation": YES}),
        *_same(_SAFE, _NO_EFA, {"runAsUser": 0, "runAsNonRoot": NO}),
    ),
    _METRICS: (
        *_ON_GPUS,
        *_mounted("pod-resources", "/var/lib/kubelet/pod-resources", "Directory", YES),
        (f"{_SAFE}capabilities add", (["SYS_ADMIN"],), _PROFILE),
        *_same(_SAFE, _PROFILE, {"runAsUser": 0, "runAsNonRoot": NO}),
        (f"{_ENV}DCGM_EXPORTER_KUBERNETES value", ("true",), "metrics do not name their pod"),
        (f"{_ENV}DCGM_EXPORTER_LISTEN value", (":9400",), "nobody scrapes another port"),
        (f"{_ENV}NODE_NAME valueFrom", (), "metrics do not name their node"),
        (f"{_BOX}args", (["-f", f"{_METRICS_FOLDER}/counters.csv"],), _NO_LIST),
        (f"{_BOX}volumeMounts name=counters mountPath", (_METRICS_FOLDER,), _NO_LIST),
        (f"{_BOX}ports 0 containerPort", (9400,), "the exporter listens at 9400"),
        *_asked("/health", "metrics", "startup", "liveness", "readiness"),
        (f"{_BOX}startupProbe failureThreshold", (), "it is killed while the driver loads"),
        (f"{_BOX}startupProbe periodSeconds", (), "many tries at 10 s hide one that is dead"),
    ),
    "ConfigMap dcgm-exporter": (("data counters.csv", (), _NO_LIST),),
    "Service dcgm-exporter": tuple(
        (f"metadata annotations prometheus.io/{key}", (value,), "Prometheus does not find it")
        for key, value in {"scrape": "true", "port": "9400", "path": "/metrics"}.items()
    ),
    _OPERATOR: (
        *_ONE,
        *_asked("/healthz", "health", "liveness"),
        *_asked("/readyz", "health", "readiness"),
        (f"{_POD}volumes name=certificate secret secretName", (_CERTIFICATE,), _NO_START),
        (f"{_POD}volumes name=template configMap name", (_NAME,), _NO_START),
        (f"{_BOX}volumeMounts name=certificate mountPath", (_SERVING,), _NO_START),
        (f"{_BOX}volumeMounts name=template mountPath", ("/etc/config",), _NO_START),
        (f"{_ARGS}--enable-scheme", ("--enable-scheme=pytorchjob",), "PyTorchJobs get no pods"),
    ),
    _RECORDER: (
        *_ONE,
        (f"{_POD}securityContext runAsUser", (POD_UID,), "it may not write beside the jobs' logs"),
        (f"{_POD}volumes name=program configMap name", (_RECORDS,), _NO_RECORD),
        (f"{_BOX}volumeMounts name=program mountPath", (_FOLDER,), _NO_RECORD),
        (f"{_BOX}command", (["python3", f"{_FOLDER}/{_PROGRAM}"],), _NO_RECORD),
        (f"{_ARGS}--volumes", ("--volumes=/volumes",), _NO_RECORD),
    ),
    f"ConfigMap {_RECORDS}": ((f"data {_PROGRAM}", (), _NO_RECORD),),
    f"ConfigMap {_NAME}": (("data initContainer.yaml", (), _NO_START),),
    _HOOK: (
        (f"{_ASKED} path", ("/validate-kubeflow-org-v1-pytorchjob",), _GOES_ON),
        (f"{_ASKED} port", (None, 443), _GOES_ON),
        ("webhooks 0 failurePolicy", ("Fail",), _GOES_ON),
        (f"{_RULE}apiGroups", (["kubeflow.org"],), _GOES_ON),
        *_same(_RULE, _GOES_ON, {"apiVersions": ["v1"], "resources": ["pytorchjobs"]}),
        (f"{_RULE}operations", (["CREATE", "UPDATE"], ["UPDATE", "CREATE"]), _GOES_ON),
    ),
    _ETCD: (
        *_ONE[:2],
        *_asked("/health", 2379, "readiness"),
        (f"{_BOX}command", (["etcd"],), "the container starts no etcd"),
        (f"{_ARGS}--enable-v2", ("--enable-v2", "--enable-v2=true"), _MEET),
        (f"{_ARGS}--listen-client-urls", ("--listen-client-urls=http://0.0.0.0:2379",), _MEET),
        (f"{_ARGS}--advertise-client-urls", ("--advertise-client-urls=http://etcd:2379",), _MEET),
    ),
}
_CODES = {"DaemonSet": Rule.DEVICE_PLUGIN, _HOOK: Rule.WEBHOOK}
_NEEDED = (
    (_OPERATOR, "Secret", _CERTIFICATE),
    (_OPERATOR, "CustomResourceDefinition", "pytorchjobs.kubeflow.org"),
    (_OPERATOR, _HOOK, _CONFIGURATION),
    (_ETCD, "Service", "etcd"),
)
_READ, _MAKE, _CHANGE = "get list watch", "get list watch create delete", "get list watch update"
_JOBS, _OWN, _CLUSTER = "the jobs' namespace", "its own namespace", "the cluster"
_ADMISSION, _HOOKS = "admissionregistration.k8s.io", "validatingwebhookconfigurations"
_OF_OPERATOR = (
    (_JOBS, "kubeflow.org", "pytorchjobs", f"{_READ} delete", "it sees no jobs, and ends none"),
    (_JOBS, "kubeflow.org", "pytorchjobs/status", "update", "jobs never say how they end"),
    (_JOBS, "kubeflow.org", "pytorchjobs/finalizers", "update", "no pod gets an owner"),
    (_JOBS, "", "pods", _MAKE, "it creates no pods"),
    (_JOBS, "", "services", _MAKE, "ranks have no names"),
    (_JOBS, "", "events", "create patch", "nobody learns why a job failed"),
    (_JOBS, "autoscaling", "horizontalpodautoscalers", f"{_MAKE} update", "elastic jobs block it"),
    (_OWN, "", "secrets", _CHANGE, "its webhook has no certificate"),
    (_CLUSTER, _ADMISSION, _HOOKS, _CHANGE, "its webhook is not trusted"),
)
_KEPT = (("", "pods"), ("", "events"), ("batch", "jobs"), ("kubeflow.org", "pytorchjobs"))
_OF_RECORDER = tuple((_JOBS, group, kind, "list watch", _NO_RECORD) for group, kind in _KEPT)
_RIGHTS = {_OPERATOR: _OF_OPERATOR, _RECORDER: _OF_RECORDER}
_LIMITED = {"secrets": _CERTIFICATE, _HOOKS: _CONFIGURATION}
"""Which one of a kind the operator may change, as its certificate is in it."""
_VERSION = re.compile(r":v?(\d+)\.(\d+)\.(\d+)")


@manifest_guard
def components(manifests: Manifests) -> Iterator[Finding]:
    """Give each part of the platform the settings without which it fails, mostly silently."""
    for each in manifests.objects:
        part = _part(each)
        code = Rule.MONITOR if "dcgm" in part else _CODES.get(each.kind, Rule.OPERATOR)
        yield from each.body.must_hold(code, _SETTINGS.get(part, ()))
        beside = _NEEDED if len(manifests.objects) > 1 else ()
        for kind, name in ((kind, name) for owner, kind, name in beside if owner == part):
            missing, place = manifests.named(kind, name, each.namespace) is None, each["metadata"]
            found = f"no {kind} {name}: it does not start, or is never asked"
            yield from report(code, (missing, place["name"], found, "apply it too"))


@manifest_guard
def device_plugins(manifests: Manifests) -> Iterator[Finding]:
    """Run one of each plugin where its devices are, in a release that knows the nodes.

    Kubernetes, "Device Plugins": a node without one offers no device, and pods stay Pending.
    """
    code, offered = Rule.DEVICE_PLUGIN, {_EFA: "vpc.amazonaws.com/efa", _GPU: "nvidia.com/gpu"}
    running = [(part, pod) for pod in manifests.pods if (part := _part(pod.owner)) in _PINNED]
    plugins = [part for part, _ in running if part in offered]
    for part, pod in running:
        image, name = pod.main["image"], pod.owner["metadata"]["name"]
        version, of_plugin = _release(image.text), code if part in offered else Rule.MONITOR
        found = "not a release, or older than the tested one: 0.5.9 breaks p6 nodes"
        old = (version < _release(_PINNED[part]), image, found, f"use {_PINNED[part]}")
        yield from report(of_plugin, old, level=Level.WARNING if version else Level.ERROR)
        found = f"a second {part}: the kubelet takes the devices of the last one"
        yield from report(code, (plugins.count(part) > 1, name, found, "keep one of the two"))
        for each in type_values(pod.owner) if part == _EFA else ():
            lacks = each.text not in INSTANCES or not INSTANCES[each.text].efa_interfaces
            found = f"{each.raw!r} has no EFA: the plugin misses the nodes that need it"
            yield from report(code, (lacks, each, found, "name types with EFA"))
    for part in [each for each in offered if plugins and each not in plugins]:
        for pod in [each for each in manifests.pods if each.asks(offered[part])][:1]:
            found = f"no {part} beside the other plugin: no node offers {offered[part]}"
            place = pod.main["resources"]["limits"][offered[part]]
            yield place.finding(code, found, f"apply the {part}")


@manifest_guard
def operator(manifests: Manifests) -> Iterator[Finding]:
    """Let the operator do what its code does, and be asked about each PyTorchJob; records too."""
    alone = len(manifests.objects) == 1
    pods = [each for each in manifests.pods if not alone and _part(each.owner) in _RIGHTS]
    spaces = sorted({f"--namespace={each.namespace}" for each in manifests.of("PyTorchJob")})
    for pod in pods:
        row = (f"{_ARGS}--namespace", (*spaces,), "it watches another namespace, or may not")
        yield from pod.owner.body.must_hold(Rule.OPERATOR, (row,))
        yield from _lacking_rights(manifests, pod)
    for hook in manifests.of(_HOOK):
        service = hook.body.at("webhooks 0 clientConfig service")
        target = manifests.named("Service", service["name"].text, service["namespace"].text)
        ports = target["spec"]["ports"] if target else service
        right = target and any(each["port"].raw == 443 for each in ports)  # noqa: PLR2004 -- HTTPS
        found = "no such Service with port 443: with failurePolicy Fail, no job is accepted"
        wrong, remedy = pods and not right, "name the operator's Service; port 443"
        yield from report(Rule.WEBHOOK, (wrong, ports, found, remedy))


def _lacking_rights(manifests: Manifests, pod: Pod) -> Iterator[Finding]:
    name, space = pod.spec["serviceAccountName"].text, pod.owner.namespace
    account: Json = {"kind": "ServiceAccount", "name": name, "namespace": space}
    bound = []
    for each in manifests.of("RoleBinding", "ClusterRoleBinding"):
        kind, named = each["roleRef"]["kind"].text, each["roleRef"]["name"].text
        role = manifests.named(kind, named, each.namespace)
        if role and account in [e.raw for e in each["subjects"]]:
            bound.append((each.namespace, role["rules"]))
    watched = pod.main.at("args --namespace").text.partition("=")[2]
    spaces = {_JOBS: watched, _OWN: pod.owner.namespace, _CLUSTER: ""}
    for where, group, resource, verbs, why in _RIGHTS[_part(pod.owner)]:
        roles = [rules for space, rules in bound if space == spaces[where]]
        rules = [rule for role in roles for rule in role]
        wanted = ((verb, (group, resource, verb)) for verb in verbs.split())
        lacking = [verb for verb, right in wanted if not any(_gives(e, right) for e in rules)]
        place = roles[0] if roles else pod.spec["serviceAccountName"]
        only = f" {_LIMITED[resource]} alone" if resource in _LIMITED else ""
        found = f"no role lets {name} {', '.join(lacking)} {resource}{only}: {why}"
        remedy = f"bind a role with {verbs} for {resource}{only} ({group!r}) to it in {where}"
        yield from report(Rule.RIGHTS, (lacking, place, found, remedy))


def _gives(rule: Value, right: tuple[str, str, str]) -> bool:
    keys = zip(("apiGroups", "resources", "verbs"), right, strict=True)
    named, only = rule["resourceNames"].texts, _LIMITED.get(right[1])
    limited = only in named if only and right[2] == "update" else not named
    return limited and all({one, "*"} & set(rule[key].texts) for key, one in keys)


def _part(each: Object) -> str:
    """Return which part of the platform an object is: by its image, its name or its kind."""
    image = each.main_pod.main["image"].text if each.main_pod else ""
    image = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    names = [each.replace("nvidia-device", "k8s-device") for each in (image, each.name)]
    keys = (*(f"{each.kind} {name}" for name in names), each.kind)
    return next((key for key in keys if key in _SETTINGS), "")


def _release(image: str) -> tuple[int, ...]:
    match = _VERSION.search(image)
    return tuple(map(int, match.groups())) if match else ()
