"""Guards of the platform: device plugins, metrics, the training operator and etcd.

Facts are those of the releases in pins.py; of the operator: main.go, pkg/cert, pkg/controller.v1.
"""

import re

from megatron_eks.catalog import kueue, pins
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.node_repair import LOST_NODE_SECONDS
from megatron_eks.catalog.workloads import WORKLOADS, WorkloadKind
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Object, manifest_guard
from megatron_eks.guards.node_types import left_out, type_values
from megatron_eks.guards.values import NO, YES, Found, Row, report, same

_GPU, _EFA = "DaemonSet k8s-device-plugin", "DaemonSet aws-efa-k8s-device-plugin"
_METRICS, _NAME, _RECORDS = "DaemonSet dcgm-exporter", "training-operator", "job-records"
_KINDS = (WORKLOADS["PyTorchJob"], WORKLOADS["JobSet"], WORKLOADS["TrainJob"], kueue.WORKLOAD)
CONTROLLERS = {f"Deployment {each.controller[1]}": each for each in _KINDS if each.controller}
"""The Deployments that make the pods of jobs, and the kinds that these are for."""
OPERATOR, SET_CONTROLLER, TRAINER, QUEUER = CONTROLLERS
RECORDER, _ETCD = f"Deployment {_RECORDS}", "Deployment etcd"
DEFINITION, HOOK = "CustomResourceDefinition", "ValidatingWebhookConfiguration"
_SERVING = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 -- compiled in
_ASKED, _MEET = "webhooks 0 clientConfig service", "ranks do not meet"
_RULE = "webhooks 0 rules 0 "
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
_TWICE, _NO_START = "none works, or two get in each other's way", "the operator does not start"
NO_RECORD = "nothing records how pods end"
_SCALER, _LOOP = "pool-scaler", "megatron_eks.programs.scaling.loop"
_SCALING = ["settings.json", "__init__.py", "aws.py", "cluster_api.py"]
_SCALING += ["demand.py", "loop.py", "objects.py"]
_NO_NODES = "nobody brings the nodes of pools with scale: queue, or ends them"
_PROGRAMS, _FOLDER = ("cluster_api", "job_objects", "lost_pods"), f"/opt/{_RECORDS}"
_PLACE, _RECORDING = "megatron_eks/programs", f"megatron_eks.programs.{_PROGRAMS[1]}"
_AWAY, _SECONDS = "with its node, jobs wait five minutes for it", "tolerationSeconds"
_LEAVES = [(f"{_POD}tolerations key={e} {_SECONDS}", (), _AWAY) for e in LOST_NODE_SECONDS]
_GOES_ON = "jobs that the operator would refuse are accepted, or none is"
_MEMORY: Row = (f"{_BOX}resources limits memory", (), "a leak takes the memory of the node's pods")


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
    return [row for each in asked for row in same(each, why, {"path": path, "port": port})]


_ONE: tuple[Row, ...] = (
    *same("spec ", _TWICE, {"replicas": 1, "strategy type": "Recreate"}),
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
    *same(_SAFE, _LEAST, {"allowPrivilegeEscalation": NO, "capabilities drop": ["ALL"]}),
)


def _refusing(known: WorkloadKind) -> tuple[Row, ...]:
    version = known.api_version.partition("/")[2]
    path = f"/validate-{known.group.replace('.', '-')}-{version}-{known.kind.lower()}"
    return (
        (f"{_ASKED} path", (path,), _GOES_ON),
        (f"{_ASKED} port", (None, 443), _GOES_ON),
        (f"{_RULE}operations", (["CREATE", "UPDATE"], ["UPDATE", "CREATE"]), _GOES_ON),
    )


def _serving(part: str, files: str | None = None) -> tuple[Row, ...]:
    """Return what a controller needs that has its certificate in a Secret, and maybe files."""
    name, secret = part.split()[1], CONTROLLERS[part].certificate
    read = (
        (f"{_POD}volumes name=template configMap name", (name,), _NO_START),
        (f"{_BOX}volumeMounts name=template mountPath", (files,), _NO_START),
        _ONE[2],
    )
    return (
        *_ONE[:2],
        _MEMORY,
        (f"{_POD}priorityClassName", ("system-cluster-critical",), "other pods evict it"),
        (f"{_BOX}ports name=webhook containerPort", (9443,), "its webhook is not reached"),
        *_LEAVES,
        *_asked("/healthz", "health", "liveness"),
        *_asked("/readyz", "health", "readiness"),
        (f"{_POD}volumes name=certificate secret secretName", (secret,), _NO_START),
        (f"{_BOX}volumeMounts name=certificate mountPath", (_SERVING,), _NO_START),
        *(read if files else ()),
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
        *same(_SAFE, _NO_EFA, {"privileged": YES, "allowPrivilegeEscalation": YES}),
        *same(_SAFE, _NO_EFA, {"runAsUser": 0, "runAsNonRoot": NO}),
    ),
    _METRICS: (
        *_ON_GPUS,
        *_mounted("pod-resources", "/var/lib/kubelet/pod-resources", "Directory", YES),
        (f"{_SAFE}capabilities add", (["SYS_ADMIN"],), _PROFILE),
        *same(_SAFE, _PROFILE, {"runAsUser": 0, "runAsNonRoot": NO}),
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
    OPERATOR: (
        *_serving(OPERATOR, "/etc/config"),
        (f"{_ARGS}--enable-scheme", ("--enable-scheme=pytorchjob",), "PyTorchJobs get no pods"),
    ),
    RECORDER: (
        *_ONE,
        (f"{_POD}volumes name=program configMap name", (_RECORDS,), NO_RECORD),
        (f"{_BOX}volumeMounts name=program mountPath", (f"{_FOLDER}/{_PLACE}",), NO_RECORD),
        (f"{_ENV}PYTHONPATH value", (_FOLDER,), NO_RECORD),
        (f"{_BOX}command", (["python3", "-m", _RECORDING],), NO_RECORD),
        (f"{_ARGS}--volumes", ("--volumes=/volumes",), NO_RECORD),
    ),
    f"ConfigMap {_RECORDS}": tuple((f"data {e}.py", (), NO_RECORD) for e in _PROGRAMS),
    f"ConfigMap {_NAME}": (("data initContainer.yaml", (), _NO_START),),
    HOOK: _refusing(_KINDS[0]),
    **{f"{HOOK} {each.webhook}": _refusing(each) for each in _KINDS[1:3]},
    TRAINER: _serving(TRAINER),
    QUEUER: (
        *_serving(QUEUER, "/etc/kueue"),
        (f"{_ARGS}--config", ("--config=/etc/kueue/configuration.json",), "it lets no job wait"),
    ),
    SET_CONTROLLER: (
        *_serving(SET_CONTROLLER),
        (f"{_ARGS}--leader-elect", ("--leader-elect=false",), "it may not hold a lease"),
    ),
    f"Deployment {_SCALER}": (
        *_ONE,
        *same(f"{_POD}securityContext ", _LEAST, {"runAsNonRoot": YES, "runAsGroup": pins.POD_UID}),
        (f"{_POD}securityContext seccompProfile type", ("RuntimeDefault",), _LEAST),
        (f"{_POD}volumes name=files configMap name", (_SCALER,), _NO_NODES),
        (f"{_BOX}volumeMounts name=files mountPath", ("/opt/scaling",), _NO_NODES),
        (f"{_ENV}PYTHONPATH value", ("/opt/scaling",), _NO_NODES),
        (f"{_BOX}command", (["python3", "-m", _LOOP],), _NO_NODES),
        (f"{_BOX}args", (["/opt/scaling/settings.json"],), _NO_NODES),
    ),
    f"ConfigMap {_SCALER}": tuple((f"data {name}", (), _NO_NODES) for name in _SCALING),
    "AdmissionCheck": (("spec controllerName", (kueue.CHECK_CONTROLLER,), _NO_NODES),),
    _ETCD: (
        *_ONE[:2],
        *_asked("/health", 2379, "readiness"),
        (f"{_BOX}command", (["etcd"],), "the container starts no etcd"),
        (f"{_ARGS}--enable-v2", ("--enable-v2", "--enable-v2=true"), _MEET),
        (f"{_ARGS}--listen-client-urls", ("--listen-client-urls=http://0.0.0.0:2379",), _MEET),
        (f"{_ARGS}--advertise-client-urls", ("--advertise-client-urls=http://etcd:2379",), _MEET),
    ),
}
_CODES = {"DaemonSet": Rule.DEVICE_PLUGIN, HOOK: Rule.WEBHOOK}
_NEEDED = {part: [("Secret", e.certificate), (HOOK, e.webhook)] for part, e in CONTROLLERS.items()}
_NEEDED[_ETCD] = [("Service", "etcd")]
for _part, _kind in CONTROLLERS.items():
    _NEEDED[_part] += [(DEFINITION, f"{each}.{_kind.group}") for each in _kind.definitions]
_VERSION = re.compile(r":v?(\d+)\.(\d+)\.(\d+)")


@manifest_guard
def components(manifests: Manifests) -> Found:
    """Give each part of the platform the settings without which it fails, mostly silently."""
    for each in manifests.objects:
        part = part_of(each)
        code = Rule.MONITOR if "dcgm" in part else _CODES.get(each.kind, Rule.OPERATOR)
        yield from each.body.must_hold(code, *_SETTINGS.get(part, ()))
        if part == RECORDER and (user := manifests.user(each.namespace)) is not None:
            why = "it may not write beside the jobs' logs"
            yield from each.body.at(f"{_POD}securityContext runAsUser").must_be(code, user, why=why)
        beside = _NEEDED.get(part, []) if len(manifests.objects) > 1 else []
        for kind, name in beside:
            missing, place = manifests.named(kind, name, each.namespace) is None, each["metadata"]
            found = f"no {kind} {name}: it does not start, or is never asked"
            yield from report(code, missing, place["name"], found, "apply it too")


@manifest_guard
def device_plugins(manifests: Manifests) -> Found:
    """Run one of each where its devices are, or no node has any (Kubernetes, "Device Plugins")."""
    code, offered = Rule.DEVICE_PLUGIN, {_EFA: "vpc.amazonaws.com/efa", _GPU: "nvidia.com/gpu"}
    running = [(part, pod) for pod in manifests.pods if (part := part_of(pod.owner)) in _PINNED]
    plugins = [part for part, _ in running if part in offered]
    for part, pod in running:
        image, name = pod.main["image"], pod.owner["metadata"]["name"]
        version, of_plugin = _release(image.text), code if part in offered else Rule.MONITOR
        found = "not a release, or older than the tested one: it may not know these nodes"
        newest = _PINNED[part].rpartition(":")[2]
        old = (version < _release(_PINNED[part]), image, found, f"use release {newest}")
        yield from report(of_plugin, *old, warns=version)
        found = f"a second {part}: the kubelet takes the devices of the last one"
        yield from report(code, plugins.count(part) > 1, name, found, "keep one of the two")
        named, lost = [*type_values(pod.owner)] if part == _EFA else [], left_out(manifests)
        found = f"{lost}, is not among them: no EFA device is offered there"
        yield from report(code, lost and named, [*named, name][0], found, "add it to the affinity")
        for each in named:
            lacks = each.text not in INSTANCES or not INSTANCES[each.text].efa_interfaces
            found = f"{each.raw!r} has no EFA: the plugin misses the nodes that need it"
            yield from report(code, lacks, each, found, "name types with EFA")
    for part in [each for each in offered if plugins and each not in plugins]:
        for pod in [each for each in manifests.pods if each.asks(offered[part])][:1]:
            found = f"no {part} beside the other plugin: no node offers {offered[part]}"
            place = pod.main["resources"]["limits"][offered[part]]
            yield place.finding(code, found, f"apply the {part}")


def part_of(each: Object) -> str:
    """Return which part of the platform an object is: by its image, its name or its kind."""
    image = each.main_pod.main["image"].text if each.main_pod else ""
    image = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    names = [each.replace("nvidia-device", "k8s-device") for each in (image, each.name)]
    keys = (*(f"{each.kind} {name}" for name in names), each.kind)
    return next((key for key in keys if key in _SETTINGS), "")


def _release(image: str) -> tuple[int, ...]:
    match = _VERSION.search(image)
    return tuple(map(int, match.groups())) if match else ()
