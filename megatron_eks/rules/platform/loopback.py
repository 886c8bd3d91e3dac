"""Rule over servers that listen on the loopback interface alone, behind a Service."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import may_select, pods_beside
from megatron_eks.rules.values import is_absent, items, mapping, number, text
from megatron_eks.rules.workloads import Container, Pod

# etcd, Prometheus, Grafana, Redis, Jupyter, TensorBoard, MLflow and others: where they listen.
_LISTENING = (
    r"--?((web\.)?listen-address|listen-client-urls|listen|bind|bind[-_](address|all)"
    r"|(ServerApp|NotebookApp)\.ip"
)
_FLAGS = re.compile(rf"{_LISTENING}|host|ip|(server\.|http-)?address)")
# Within a script, the host of a client is written alike.
_IN_SCRIPTS = re.compile(rf"(?<!\S)(?P<flag>{_LISTENING}))[=\s]\s*['\"]?(?P<value>[^\s'\"]+)")
_VARIABLES = frozenset({"ETCD_LISTEN_CLIENT_URLS", "GF_SERVER_HTTP_ADDR", "TENSORBOARD_HOST"})
# Where they listen without a word: tensorboard --helpfull, --host and --bind_all; MLflow, "CLI",
# server, --host; etcd, "Configuration options", --listen-client-urls.
_BY_ITSELF = (
    (r"tensorboard", "--host --bind_all --bind-all", "--bind_all"),
    (r"mlflow\s+(?:server|ui)", "--host -h --app-name --gunicorn-opts", "--host 0.0.0.0"),
    (
        r"etcd",
        "--listen-client-urls -listen-client-urls --config-file",
        "--listen-client-urls=http://0.0.0.0:2379, and --advertise-client-urls",
    ),
)
_TOLD_OTHERWISE = re.compile(r"\$[({]|\{\{")
_OWN = re.compile(
    r"(?:[a-z]+://)?(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]|::1)(?::(?P<port>[0-9]+))?/?"
)


def servers(together: ManifestSet) -> Iterator[Found]:
    """Warn of a server that only its own pod reaches, to which a Service leads all the same.

    ip(7), INADDR_LOOPBACK; etcd, "Configuration options", --listen-client-urls: a client in another
    pod gets "connection refused", as does a rendezvous, however right the Service is.
    """
    for service in together.of("Service"):
        labels = mapping(service.spec.get("selector")) or {}
        ports = [mapping(each) or {} for each in items(service.spec.get("ports")) or []]
        for owner, pod in pods_beside(service, together) if labels else ():
            if not may_select(labels, owner, pod):
                continue
            for container in pod.containers:
                bare = _told_nothing(container)
                if bare is not None and _is_behind(container, pod, None, ports):
                    found = f"{bare[0]} listens on localhost unless told otherwise: only this pod "
                    found += f"reaches it, and {service.title} leads to it"
                    path = (*container.path[1:], bare[2])
                    remedy = f"add {bare[1]}"
                    yield owner, owner.find(Code.SERVICE, path, found, remedy, Level.WARNING)
                met = _listens_to_itself(container)
                if met is None or not _is_behind(container, pod, met[2], ports):
                    continue
                where, said, _ = met
                found = f"{said}: only this pod reaches it, and {service.title} leads to it"
                remedy = "listen on 0.0.0.0"
                path = (*container.path[1:], *where)
                yield owner, owner.find(Code.SERVICE, path, found, remedy, Level.WARNING)


def _told_nothing(container: Container) -> tuple[str, str, str] | None:
    """Return a program that listens on the loopback alone by itself, and what it should be told."""
    line, key = container.line, "args" if "args" in container.body else "command"
    # A variable or a file may say it as well.
    if _TOLD_OTHERWISE.search(line) or container.variables or container.body.get("envFrom"):
        return None
    changed = (text(container.body.get("image")) or "").startswith("nvcr.io/nvidia/")
    for program, flags, remedy in _BY_ITSELF:
        # NVIDIA's images have a TensorBoard of their own (tensorflow/tensorboard, issue 5648).
        if changed and program == "tensorboard":
            continue
        match = re.match(
            rf"(?:(?:/\S*/)?(?:ba)?sh -\w*c )?(?:exec )?(?:/\S*/)?({program})(?=\s|$)", line
        )
        said = any(re.search(rf"(?<!\S){re.escape(each)}(?![\w-])", line) for each in flags.split())
        if match and not said:
            return match[1], remedy, key
    return None


def _listens_to_itself(
    container: Container,
) -> "tuple[tuple[str | int, ...], str, int | None] | None":
    """Return where a container is told to listen on the loopback alone, and on which port."""
    words = container.words
    start = len(container.path)
    for index, (path, word) in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and index + 1 < len(words):
            value = words[index + 1][1]
        if _FLAGS.fullmatch(name) and (port := _own(value)) is not None:
            return path[start:], f"{name} {value}", port or None
        for met in _IN_SCRIPTS.finditer(word) if " " in word else ():
            if (port := _own(met["value"])) is not None:
                return path[start:], f"{met['flag']} {met['value']}", port or None
    for each in container.variables:
        if each.name in _VARIABLES and (port := _own(each.value or "")) is not None:
            return ("env",), f"{each.name}={each.value}", port or None
    return None


def _own(value: str) -> int | None:
    """Return the port of addresses that are all the loopback's, 0 where they name none."""
    met = [_OWN.fullmatch(each.strip()) for each in value.split(",")]
    if not all(met):
        return None
    return next((int(each["port"]) for each in met if each and each["port"]), 0)


def _is_behind(
    container: Container, pod: Pod, port: int | None, ports: "list[dict[str, Json]]"
) -> bool:
    """Tell whether a Service leads to this container's port, and not to one in front of it."""
    listed = [mapping(each) or {} for each in items(container.body.get("ports")) or []]
    named = {text(each.get("name")): number(each.get("containerPort")) for each in listed}
    own = {port} if port else {each for each in named.values() if each}
    alone = sum(1 for each in pod.containers if not each.is_init) == 1
    for body in ports:
        target = body.get("port") if is_absent(body.get("targetPort")) else body.get("targetPort")
        found = number(target) or named.get(text(target))
        if found in own or (alone and not own):
            return True
    return False
