"""Rules over environment variables and secrets of containers."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from megatron_eks.catalog.environment import NEEDLESS, POLICIES, Verdict, is_secret
from megatron_eks.catalog.environment_values import by_value
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
from megatron_eks.rules.workloads import (
    EFA,
    GPU,
    Container,
    Manifest,
    Pod,
    Variable,
    asks_for_pages,
)

# What the operator or torchrun sets for each rank; outside a PyTorchJob somebody has to.
RENDEZVOUS = re.compile(
    r"MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|PET_(NNODES|NPROC_PER_NODE|NODE_RANK|MASTER_ADDR|MASTER_PORT|MAX_RESTARTS|STANDALONE|RDZV_.*)"
    r"|TORCHELASTIC_(MAX_RESTARTS|RESTART_COUNT|RUN_ID|USE_AGENT_STORE)"
)

# These are wrong because of NVLink, which GPUs of the G families lack.
_ABOUT_NVLINK = frozenset({"NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE"})
_FEWEST_EFA_WITH_NVLINK = 4
_CHOICES = frozenset({"NCCL_ALGO", "NCCL_PROTO"})

_VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s\"';&|]*)"
_SPACE = r"(?:[ \t]|\\\n){1,80}"
# Bounded: each line of a long script may begin a list that goes on to its end.
_LIST = rf"(?P<list>(?:[A-Za-z_]\w*={_VALUE}{_SPACE}){{0,40}}[A-Za-z_]\w*={_VALUE})"
# What a shell exports, what mpirun hands on by -x, and what is set for one command that starts
# ranks; an assignment that stands alone reaches no program.
_EXPORTED = re.compile(rf"(?:\b(?:export|(?:declare|typeset)\s+-x)|(?<!\S)-x)\s+{_LIST}")
_BEFORE = re.compile(
    rf"(?:^|[\n;&|(]|\b(?:exec|env|then|do|else|nohup|time)\b)[ \t]*{_LIST}{_SPACE}"
    r"(?:exec[ \t]+)?(?:[\w./-]*/)?(?:torchrun|python3?|accelerate|deepspeed|mpirun)(?![\w.-])"
)
_ASSIGNED = re.compile(rf"(?P<name>[A-Za-z_]\w*)=(?P<value>{_VALUE})")
_COMMENTED = re.compile(r"(?m)^[ \t]*#[^\n]*")
_ENV = re.compile(r"(\S*/)?env")

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
    for pod in manifest.pods:
        for container in pod.containers:
            if container.is_init or not (operator or container.names(GPU)):
                # mpirun hands on what its launcher names to pods that have the GPUs.
                if manifest.kind == "MPIJob" and not container.is_init:
                    yield from _handed_on(container, manifest)
                continue
            listed = [Set(*each) for each in variables_of(container)]
            yield from of_container(manifest, pod, container, listed)


def of_container(
    manifest: Manifest, pod: Pod, container: Container, listed: "Iterable[Set]"
) -> Iterator[Finding]:
    """Judge variables that a container with GPUs gets, wherever they are set."""
    operator = manifest.pytorch_replicas is not None
    # What serves instead of training may have reasons of its own, such as another EFA library.
    level = Level.ERROR if manifest.is_job or manifest.kind == "Pod" else Level.WARNING
    contexts = _contexts(container, pod)
    lone = len(manifest.pods) == 1 and (pod.replicas or 1) == 1
    for each in listed:
        rendezvous = RENDEZVOUS.fullmatch(each.name) is not None
        if (operator or not rendezvous) and not (lone and each.value == "lo"):
            yield from _judged(each, container, pod, contexts, level)


@dataclass(frozen=True)
class Set:
    """A variable, where it is set, and to what; None for what comes from elsewhere."""

    path: Path
    name: str
    value: str | None


def variables_of(container: Container) -> Iterator[tuple[Path, str, str | None]]:
    """Return what a container's programs get: by its list, a shell, env or mpirun."""
    yield from _listed(container)
    yield from _on_the_line(container)


def _listed(container: Container) -> Iterator[tuple[Path, str, str | None]]:
    for each in container.variables:
        yield (*container.path, "env", each.index), each.name, each.value


def _on_the_line(container: Container) -> Iterator[tuple[Path, str, str | None]]:
    """Return what a shell exports, and what mpirun hands on (its option -x)."""
    words, in_env = container.words, False
    for (path, word), (_, before) in zip(words, [((), ""), *words], strict=False):
        alone = _ASSIGNED.fullmatch(word)
        # env(1): options, then NAME=VALUE, then the command.
        starts = _ENV.fullmatch(word) is not None
        in_env = starts or (in_env and (alone is not None or word.startswith("-")))
        if before == "-x" and "=" in word:
            name, _, value = word.partition("=")
            yield path, name, value
        elif in_env and alone:
            yield path, alone["name"], alone["value"]
        if "=" in word and any(char.isspace() for char in word):
            yield from ((path, *each) for each in in_script(word))


def in_script(script: str) -> Iterator[tuple[str, str]]:
    """Return what a shell's script sets for the programs that it starts, each place once."""
    script = _COMMENTED.sub("", script)
    lists = [match.span("list") for kind in (_EXPORTED, _BEFORE) for match in kind.finditer(script)]
    for start, end in dict.fromkeys(lists):
        for match in _ASSIGNED.finditer(script, start, end):
            yield match["name"], match["value"].strip("\"'")


def _handed_on(launcher: Container, manifest: Manifest) -> Iterator[Finding]:
    workers = [(each, pod) for pod in manifest.pods for each in pod.containers if each.names(GPU)]
    for path, name, value in _on_the_line(launcher):
        if workers and not RENDEZVOUS.fullmatch(name):
            # Benchmarks try things out by this option.
            contexts = _contexts(*workers[0])
            yield from _judged(Set(path, name, value), *workers[0], contexts, Level.WARNING)


def _judged(
    variable: Set, container: Container, pod: Pod, contexts: list[Context], level: Level
) -> Iterator[Finding]:
    name, value = variable.name, variable.value
    if _is_harmless(name, value, container, pod):
        return
    policy = judge_any(name, value or "", contexts)
    if policy.verdict in {Verdict.REFUSED, Verdict.NO_EFFECT}:
        found = f"{shown(name)}: {policy.reason}"
        here_alone = policy.verdict is Verdict.NO_EFFECT and policy is not POLICIES.get(name)
        # What NCCL itself would choose otherwise, and somebody may choose knowingly.
        needless = name in NEEDLESS | _CHOICES and policy is POLICIES.get(name)
        weight = Level.WARNING if needless or here_alone else level
        of_ranks = policy.ends and "mpiReplicaSpecs" in variable.path
        weight = Level.ERROR if of_ranks else weight
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
        # Only our own images name it already; what is wrong by its value leaves NCCL with TCP.
        of_nvidia = value == "spcx" and not container.names(EFA)
        return value is None or of_nvidia or by_value(name, value) is None
    if name.startswith("PET_"):
        return not RENDEZVOUS.fullmatch(name)
    if name == "FI_EFA_USE_HUGE_PAGE":
        # Without pages of its own libfabric finds none, whether it looks for them or not.
        return unknown or not asks_for_pages(container)
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
            for path, name, value in _on_the_line(container):
                literal = is_secret(name, value or "") and not is_placeholder(value or "")
                known = kind_of_secret(value or "") is not None
                if literal and not known and not (value or "").startswith(("/", "$", "<")):
                    found = f"{shown(name)} holds a secret, in the command line"
                    yield Finding(Code.SECRET_IN_MANIFEST, path, found, _MOUNT_IT)
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
