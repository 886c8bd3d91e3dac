"""Rules over where an elastic PyTorchJob meets, and what becomes of its ranks when one fails."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.launch_flags import other_host
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import MAIN_CONTAINER, Container, Manifest, Pod

_ETCD = ("etcd", "etcd-v2")
_LOOP = re.compile(r"localhost|127\.[0-9.]+|0\.0\.0\.0|\[?::1?\]?", re.IGNORECASE)
_WITH_PORT = re.compile(r"([a-z]+://.*|[A-Za-z0-9.-]+:[0-9]+)(/.*)?")
_POLICY = ("spec", "elasticPolicy")
_SETTINGS = (
    *("join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout", "read_timeout"),
    *("timeout", "keep_alive_interval", "keep_alive_max_attempt", "is_host", "store_type"),
    *("use_libuv", "rank", "protocol", "ssl_cert", "ssl_cert_key", "ca_cert", "etcd_prefix"),
)
_CLOSE = 0.8
_CODED = re.compile(r"\bexit (1[2-9][0-9]|2[0-9][0-9])\b|\bkill -")
_LAUNCHES = re.compile(r"\baccelerate\s+launch\b")


def hosts(manifest: Manifest) -> Iterator[Finding]:
    """Require of a rendezvous over etcd a host that serves it, and of any one a host for all.

    kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/elastic.go: without rdzvHost the endpoint is
    the first worker, where c10d listens and etcd does not; rdzvPort is added to the host.
    """
    policy = mapping(manifest.spec.get("elasticPolicy")) or {}
    if manifest.pytorch_replicas is None or not policy or _overridden(manifest):
        return
    host, backend = policy.get("rdzvHost"), policy.get("rdzvBackend")
    name = text(host) or ""
    own = re.fullmatch(rf"{re.escape(manifest.name or '?')}-(master|worker)-[0-9]+(\..+)?", name)
    pods = sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)
    if backend in _ETCD and (is_absent(host) or own) and not _serves_etcd(manifest):
        where = name or f"{manifest.name or 'JOB'}-worker-0"
        found = f"{shown(backend)}, and the ranks ask {where} for it: nobody serves etcd there"
        remedy = "set rdzvHost to the Service of etcd and rdzvPort to 2379, or use c10d"
        path = (*_POLICY, "rdzvBackend")
        yield manifest.find(Code.RENDEZVOUS_FLAG, path, found, remedy)
    elif _LOOP.fullmatch(name) and pods > 1:
        found = f"{shown(name)}: each pod waits at itself, and none meets another"
        remedy = "remove it: the operator names the first worker"
        yield manifest.find(Code.RENDEZVOUS_FLAG, (*_POLICY, "rdzvHost"), found, remedy)
    elif _WITH_PORT.fullmatch(name) and not is_placeholder(name):
        found = f"{shown(name)}, to which the operator adds a port: no such host"
        remedy = "write the host's name alone, and its port as rdzvPort"
        yield manifest.find(Code.RENDEZVOUS_FLAG, (*_POLICY, "rdzvHost"), found, remedy)
    elif (said := other_host(manifest, name)) is not None:
        found = f"{shown(name)}: {said}"
        remedy = "remove it: the operator names the first worker"
        yield manifest.find(Code.RENDEZVOUS_FLAG, (*_POLICY, "rdzvHost"), found, remedy)
    if policy.get("standalone") is True and pods > 1:
        found = "true: every node trains alone"
        yield manifest.find(Code.RENDEZVOUS_FLAG, (*_POLICY, "standalone"), found, "remove it")


def settings(manifest: Manifest) -> Iterator[Finding]:
    """Require of the settings of a rendezvous names that it reads, and whole seconds.

    PyTorch, torch/distributed/elastic/rendezvous: dynamic_rendezvous.create_handler and
    c10d_rendezvous_backend read these by get_as_int; other names are taken, and read by nobody.
    """
    policy = mapping(manifest.spec.get("elasticPolicy")) or {}
    given: list[tuple[Path, str, str]] = [
        ((manifest.title, *_POLICY, "rdzvConf", index), text(body.get("key")) or "", _value(body))
        for index, each in enumerate(items(policy.get("rdzvConf")) or [])
        if (body := mapping(each)) is not None
    ]
    for pod in manifest.pods:
        for container in pod.containers:
            for path, name, value in launcher_flags(container):
                pairs = value.split(",") if name == "rdzv-conf" else []
                given += [
                    (path, key, held)
                    for key, _, held in (pair.partition("=") for pair in pairs)
                    if held
                ]
    for path, key, value in given:
        close = get_close_matches(key, _SETTINGS, 1, _CLOSE)
        if key not in _SETTINGS and close:
            found = f"the rendezvous reads no {shown(key)}"
            remedy = f"did you mean {close[0]}?"
            yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, Level.WARNING)
        elif key.endswith("timeout") and number(value) is None and not is_placeholder(value):
            found = f"{key} {shown(value)} is no whole number of seconds"
            surely = key in _SETTINGS and key != "timeout"
            level = Level.ERROR if surely else Level.WARNING
            yield Finding(Code.RENDEZVOUS_FLAG, path, found, "write seconds, such as 900", level)


def _value(body: "dict[str, Json]") -> str:
    value = body.get("value")
    return text(value) or ("" if number(value) is None else str(number(value)))


def room(manifest: Manifest) -> Iterator[Finding]:
    """Require of an elastic policy room for the Master too, which it does not count.

    kubeflow/trainer, issue 2277, and pkg/apis/kubeflow.org/v1/pytorch_defaults.go: without bounds
    they are the Worker's replicas; the Master's torchrun reads the same PET_NNODES and meets there.
    """
    types, policy = manifest.pytorch_replicas or {}, mapping(manifest.spec.get("elasticPolicy"))
    launched = all(each.has_launcher for pod in manifest.pods for each in _main(pod))
    if not policy or not {"Master", "Worker"} <= types.keys() or not launched:
        return
    if policy.get("metrics") or _has_flag(manifest, {"nnodes", "rdzv-endpoint", "rdzv-backend"}):
        return
    workers = (mapping(types["Worker"]) or {}).get("replicas")
    given = [policy.get(key) for key in ("maxReplicas", "minReplicas")]
    most = number(next((each for each in (*given, workers) if not is_absent(each)), 1))
    pods = sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)
    # Fewer than the workers alone is another mistake.
    if most is not None and (number(workers) or 1) <= most < pods:
        found = f"{pods} pods with the Master, and torchrun is told of {most}: one waits outside"
        remedy = f"remove the Master and write Worker.replicas: {pods}"
        place = ("spec", "pytorchReplicaSpecs", "Master")
        yield manifest.find(Code.RENDEZVOUS_FLAG, place, found, remedy)


def _main(pod: Pod) -> list[Container]:
    return [each for each in pod.containers if each.name == MAIN_CONTAINER]


def run_ids(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a meeting in etcd without a name of its own: all jobs there have the same.

    pytorch/pytorch, issue 82160, and torch/distributed/run.py: rdzv_id is "none" by default, and
    etcd keeps what the last run with that name left, so that ranks end with RendezvousClosedError.
    """
    policy = mapping(manifest.spec.get("elasticPolicy")) or {}
    by_policy = manifest.pytorch_replicas is not None and policy.get("rdzvBackend") in _ETCD
    named = any(
        each.name == "PET_RDZV_ID" or container.body.get("envFrom")
        for pod in manifest.pods
        for container in pod.containers
        for each in container.variables
    )
    if named or not is_absent(policy.get("rdzvId")) or _has_flag(manifest, {"rdzv-id"}):
        return
    found = "etcd without an id: every run there is called 'none', and meets what the last one left"
    if by_policy and not is_absent(policy.get("rdzvHost")) and not _overridden(manifest):
        remedy = f"write rdzvId: {manifest.name or 'the name of this run'}"
        place = (*_POLICY, "rdzvId")
        yield manifest.find(Code.RENDEZVOUS_FLAG, place, found, remedy, Level.WARNING)
    for pod in manifest.pods:
        for container in pod.containers:
            for path, name, value in launcher_flags(container):
                if name == "rdzv-backend" and value in _ETCD:
                    remedy = f"add --rdzv_id={manifest.name or 'the name of this run'}"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, Level.WARNING)


def _overridden(manifest: Manifest) -> bool:
    """Tell whether a flag of torchrun says it otherwise."""
    return _has_flag(manifest, {"rdzv-endpoint", "rdzv-backend"})


def _has_flag(manifest: Manifest, flags: set[str]) -> bool:
    return any(
        name in flags
        for pod in manifest.pods
        for container in pod.containers
        for _, name, _ in launcher_flags(container)
    )


def _serves_etcd(manifest: Manifest) -> bool:
    return any(
        "etcd" in (text(container.body.get("image")) or "") or "etcd " in f"{container.line} "
        for pod in manifest.pods
        for container in pod.containers
    )


def exit_codes(manifest: Manifest) -> Iterator[Finding]:
    """Warn of ranks that are started again by their exit code, which is the launcher's.

    kubeflow/trainer, issues 2044, 2045 and 2200: with ExitCode only 128 and above are tried again;
    torchrun ends with 1 whatever ended its workers, a lost GPU or a timeout of NCCL too.
    """
    for name, value in (manifest.pytorch_replicas or {}).items():
        policy = (mapping(value) or {}).get("restartPolicy")
        pods = [pod for pod in manifest.pods if name in pod.path]
        launched = any(
            each.has_launcher or _LAUNCHES.search(each.line)
            for pod in pods
            for each in pod.containers
            if not each.is_init
        )
        # A shell may end with another code of its own.
        coded = any(_CODED.search(each.line) for pod in pods for each in pod.containers)
        if policy == "ExitCode" and launched and not coded:
            found = "ExitCode, and torchrun ends with 1 whatever happened: it is not tried again"
            path = ("spec", "pytorchReplicaSpecs", name, "restartPolicy")
            yield manifest.find(Code.RESTART_POLICY, path, found, "use OnFailure", Level.WARNING)
