"""Rules over environment variables and secrets of containers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from megatron_eks.catalog.environment import NEEDLESS, POLICIES, Verdict, is_secret
from megatron_eks.catalog.environment_verdicts import (
    ABOUT_EFA,
    DEPENDS_ON_VALUE,
    Context,
    judge_any,
)
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.hardware import instance_types, type_names
from megatron_eks.rules.megatron_runs import splits_layers, uses_fsdp
from megatron_eks.rules.secret_words import kind_of_secret
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest, Pod, Variable

# What the operator or torchrun sets for each rank; outside a PyTorchJob somebody has to.
RENDEZVOUS = re.compile(
    r"MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|PET_(NNODES|NPROC_PER_NODE|NODE_RANK|MASTER_ADDR|MASTER_PORT|MAX_RESTARTS|STANDALONE|RDZV_.*)"
    r"|TORCHELASTIC_(ERROR_FILE|MAX_RESTARTS|RESTART_COUNT|RUN_ID|USE_AGENT_STORE)"
)

# These are wrong because of NVLink, which GPUs of the G families lack.
_ABOUT_NVLINK = frozenset({"NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE"})
_FEWEST_EFA_WITH_NVLINK = 4
_CHOICES = frozenset({"NCCL_ALGO", "NCCL_PROTO"})

_EXPORTED = re.compile(
    r"(?:\bexport|(?<!\S)-x)\s+(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"';&|]*)"
)

_TOKEN_FLAG = re.compile(
    r"(?<![\w-])(?P<flag>--(?:hf|hugging[_-]?face|hub|(?:wandb[_-])?api|wandb)[_-](?:token|key))"
    r"(?:(?:=|[ \t]+)(?P<value>\S+)|$)"
)
_MOUNT_IT = "mount a Kubernetes Secret as a file, and make the value that was written here invalid"


def refused_variables(manifest: Manifest) -> Iterator[Finding]:
    """Refuse variables that break or slow a run, for the reason that the catalogue gives.

    megatron_eks.catalog.environment cites the source of each verdict.
    """
    operator = manifest.pytorch_replicas is not None
    # What serves instead of training may have reasons of its own, such as another EFA library.
    level = Level.ERROR if manifest.is_job or manifest.kind == "Pod" else Level.WARNING
    for pod in manifest.pods:
        for container in pod.containers:
            if container.is_init or not (operator or container.names(GPU)):
                # mpirun hands on what its launcher names to pods that have the GPUs.
                if manifest.kind == "MPIJob" and not container.is_init:
                    yield from _handed_on(container, manifest)
                continue
            contexts = _contexts(container, pod)
            for path, name, value in (*_listed(container), *_on_the_line(container)):
                rendezvous = RENDEZVOUS.fullmatch(name) is not None
                lone = len(manifest.pods) == 1 and (pod.replicas or 1) == 1
                local = lone and value == "lo"
                if (operator or not rendezvous) and not local:
                    yield from _judged(_Set(path, name, value), container, pod, contexts, level)


@dataclass(frozen=True)
class _Set:
    """A variable, where it is set, and to what; None for what comes from elsewhere."""

    path: Path
    name: str
    value: str | None


def _listed(container: Container) -> Iterator[tuple[Path, str, str | None]]:
    for each in container.variables:
        yield (*container.path, "env", each.index), each.name, each.value


def _on_the_line(container: Container) -> Iterator[tuple[Path, str, str | None]]:
    """Return what a shell exports, and what mpirun hands on (its option -x)."""
    words = container.words
    for (path, word), (_, before) in zip(words, [((), ""), *words], strict=False):
        if before == "-x" and "=" in word:
            name, _, value = word.partition("=")
            yield path, name, value
        for match in _EXPORTED.finditer(word) if "=" in word else ():
            yield path, match["name"], match["value"].strip("\"'")


def _handed_on(launcher: Container, manifest: Manifest) -> Iterator[Finding]:
    workers = [(each, pod) for pod in manifest.pods for each in pod.containers if each.names(GPU)]
    for path, name, value in _on_the_line(launcher):
        if workers and not RENDEZVOUS.fullmatch(name):
            # Benchmarks try things out by this option.
            contexts = _contexts(*workers[0])
            variable = _Set(path, name, value)
            yield from _judged(variable, *workers[0], contexts, Level.WARNING)


def _judged(
    variable: _Set, container: Container, pod: Pod, contexts: list[Context], level: Level
) -> Iterator[Finding]:
    name, value = variable.name, variable.value
    if _is_harmless(name, value, container, pod):
        return
    policy = judge_any(name, value or "", contexts)
    if policy.verdict in {Verdict.REFUSED, Verdict.NO_EFFECT}:
        found = f"{shown(name)}: {policy.reason}"
        here_alone = policy.verdict is Verdict.NO_EFFECT and policy is not POLICIES.get(name)
        # What NCCL itself would choose otherwise, and somebody may choose knowingly.
        chosen = name in _CHOICES and policy is POLICIES.get(name)
        weight = Level.WARNING if name in NEEDLESS or here_alone or chosen else level
        yield Finding(Code.REFUSED_VARIABLE, variable.path, found, policy.instead, weight)
    elif policy.verdict is Verdict.ADVISED_AGAINST:
        found, code = f"{shown(name)}: {policy.reason}", Code.VARIABLE_ADVISED_AGAINST
        yield Finding(code, variable.path, found, policy.instead, Level.WARNING)


def _spans_hosts(pod: Pod) -> bool:
    """Tell whether NVLink between hosts is, or may well be, what the pod gets."""
    claims = pod.spec.get("resourceClaims")
    return not is_absent(claims) or any(each.startswith("p6e-") for each in type_names(pod))


def _is_harmless(name: str, value: str | None, container: Container, pod: Pod) -> bool:
    """Tell whether nothing can be held against a variable here, whatever the catalogue says."""
    unknown = value is None or is_placeholder(value)
    if name.endswith("_SOCKET_IFNAME"):
        # Names of a node's interfaces differ; that eth0 is none of them holds for every EKS AMI.
        return unknown or (pod.host_network and value not in {"eth0", "=eth0"})
    if name.startswith("NCCL_MNNVL_"):
        # NCCL user guide, "NCCL_MNNVL_ENABLE"; what a claim brings may be such a domain of NVLink.
        return _spans_hosts(pod)
    if name == "NCCL_NET_PLUGIN":
        # Only our own images name it already; `none` leaves NCCL with TCP.
        return value != "none"
    if name.startswith("PET_"):
        return not RENDEZVOUS.fullmatch(name)
    # Secrets are the business of `secrets`, for every container.
    elsewhere = is_secret(name, value or "?") or (unknown and name in DEPENDS_ON_VALUE)
    no_efa = ABOUT_EFA.fullmatch(name) is not None and not container.names(EFA)
    no_nvlink = name in _ABOUT_NVLINK and not _has_nvlink(container, pod)
    return elsewhere or no_efa or no_nvlink


def _contexts(container: Container, pod: Pod) -> list[Context]:
    """Return where a variable will be: on each type that the pod allows, or on any."""
    mounts = items(container.body.get("volumeMounts")) or []
    shared = {
        text(volume.get("name"))
        for each in items(pod.spec.get("volumes")) or []
        if "persistentVolumeClaim" in (volume := mapping(each) or {})
    }
    places = tuple(
        path
        for each in mounts
        if text((mount := mapping(each) or {}).get("name")) in shared
        and (path := text(mount.get("mountPath")))
    )
    anywhere = Context(
        host_network=pod.host_network,
        splits_layers=splits_layers(container),
        fsdp=uses_fsdp(container),
        shared=places,
    )
    return [replace(anywhere, instance=each) for each in instance_types(pod)] or [anywhere]


def _has_nvlink(container: Container, pod: Pod) -> bool:
    """Tell whether the container's GPUs surely have NVLink: by type, or by many EFA devices."""
    names = type_names(pod)
    if names:
        return all(name.startswith("p") for name in names)
    return (container.amount(EFA) or 0) >= _FEWEST_EFA_WITH_NVLINK


def secrets(manifest: Manifest) -> Iterator[Finding]:
    """Refuse secrets written into variables or arguments, which end in logs and in Git.

    EKS Best Practices, "Use volume mounts instead of environment variables"; CIS EKS 4.4.1.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for variable in container.variables:
                kind = _secret_in_variable(variable)
                if kind:
                    # The value itself must not travel into a log by way of a finding.
                    found = f"{shown(variable.name)} holds {kind}"
                    path = (*container.path, "env", variable.index)
                    yield Finding(Code.SECRET_IN_MANIFEST, path, found, _MOUNT_IT)
            words = container.words
            following = [word for _, word in words[1:]]
            for (path, word), next_word in zip(words, [*following, ""], strict=False):
                kind = _secret_in_word(word, next_word)
                if kind:
                    found = f"{kind} in the command line"
                    yield Finding(Code.SECRET_IN_MANIFEST, path, found, _MOUNT_IT)


def _secret_in_variable(variable: Variable) -> str | None:
    value = variable.value or ""
    kind = kind_of_secret(value)
    literal = is_secret(variable.name, value) and not value.startswith("/")
    return kind or ("a secret" if literal and not is_placeholder(value) else None)


def _secret_in_word(word: str, next_word: str) -> str | None:
    kind, flag = kind_of_secret(word), _TOKEN_FLAG.search(word) if "--" in word else None
    if kind or not flag:
        return kind
    alone = flag["value"] is None and flag.end() == len(word)
    value = (next_word if alone else flag["value"] or "").strip("\"'")
    given = value and not value.startswith("-") and not is_placeholder(value)
    return f"a secret after {flag['flag']}" if given else None


def duplicate_variables(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a variable that is given twice: the last one wins, or nothing is accepted at all.

    In a PyTorchJob the API server refuses it (the CRD keys the list by name).
    """
    level = Level.ERROR if manifest.pytorch_replicas is not None else Level.WARNING
    for pod in manifest.pods:
        for container in pod.containers:
            first: dict[str, int] = {}
            for variable in container.variables:
                if variable.name in first:
                    found = f"{shown(variable.name)} is already env[{first[variable.name]}]"
                    path = (*container.path, "env", variable.index)
                    yield Finding(
                        Code.DUPLICATE_VARIABLE, path, found, "keep one of the two", level
                    )
                first.setdefault(variable.name, variable.index)
