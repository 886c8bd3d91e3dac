"""Rules over environment variables and secrets of containers."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.environment import NEEDLESS, Verdict, is_secret, judge
from megatron_eks.config.errors import Code, Finding, Level
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest, Pod, Variable

# What the operator or torchrun sets for each rank; outside a PyTorchJob somebody has to.
RENDEZVOUS = re.compile(
    r"MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|PET_(NNODES|NPROC_PER_NODE|NODE_RANK|MASTER_ADDR|MASTER_PORT|MAX_RESTARTS|STANDALONE|RDZV_.*)"
    r"|TORCHELASTIC_(ERROR_FILE|MAX_RESTARTS|RESTART_COUNT|RUN_ID|USE_AGENT_STORE)"
)

# These are wrong because of EFA and its plugin, so only where a container has an EFA device.
ABOUT_EFA = re.compile(
    r"FI_.*|RDMAV_FORK_SAFE|NCCL_(PROTO|ALGO|IB_DISABLE|NET|NET_PLUGIN|TUNER_PLUGIN)"
    r"|NCCL_(BUFFSIZE|P2P_NET_CHUNKSIZE|MIN_NCHANNELS|IB_\w+|NET_GDR_\w+|SOCKET_NTHREADS"
    r"|NSOCKS_PERTHREAD|NET_PLUGIN)|OFI_NCCL_.*"
)

# These are wrong because of NVLink, which GPUs of the G families lack.
_ABOUT_NVLINK = frozenset({"NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE"})
_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_FEWEST_EFA_WITH_NVLINK = 4

# Written out, but what the library does anyway.
AS_BY_DEFAULT = {
    "CUDA_LAUNCH_BLOCKING": frozenset("0"),
    "NCCL_IB_DISABLE": frozenset("0"),
    "NCCL_NVLS_ENABLE": frozenset("12"),
    "NCCL_P2P_DISABLE": frozenset("0"),
    "NCCL_SHM_DISABLE": frozenset("0"),
    "FI_EFA_USE_HUGE_PAGE": frozenset("1"),
}

_TOKENS = {
    "hugging_face": "a Hugging Face token",
    "aws": "an AWS access key",
    "github": "a GitHub token",
}
_TOKEN = re.compile(
    r"\b(?:(?P<hugging_face>hf_[A-Za-z0-9]{30,})|(?P<aws>(?:AKIA|ASIA)[A-Z0-9]{16})"
    r"|(?P<github>gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,}))\b"
)
_TOKEN_FLAG = re.compile(
    r"(?<![\w-])(?P<flag>--(?:hf|hugging[_-]?face|hub|api)[_-](?:token|key))"
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
                continue
            for variable in container.variables:
                rendezvous = RENDEZVOUS.fullmatch(variable.name) is not None
                lone = len(manifest.pods) == 1 and (pod.replicas or 1) == 1
                local = lone and variable.value == "lo"
                if (operator or not rendezvous) and not local:
                    yield from _judged(variable, container, pod, level)


def _judged(variable: Variable, container: Container, pod: Pod, level: Level) -> Iterator[Finding]:
    name, value = variable.name, variable.value
    if _is_harmless(variable, container, pod):
        return
    policy = judge(name, value or "", host_network=pod.host_network)
    path = (*container.path, "env", variable.index)
    if policy.verdict in {Verdict.REFUSED, Verdict.NO_EFFECT}:
        found = f"{shown(name)}: {policy.reason}"
        weight = Level.WARNING if name in NEEDLESS else level
        yield Finding(Code.REFUSED_VARIABLE, path, found, policy.instead, weight)
    elif policy.verdict is Verdict.ADVISED_AGAINST:
        found = f"{shown(name)}: {policy.reason}"
        yield Finding(Code.VARIABLE_ADVISED_AGAINST, path, found, policy.instead, Level.WARNING)


def _is_harmless(variable: Variable, container: Container, pod: Pod) -> bool:
    """Tell whether nothing can be held against a variable here, whatever the catalogue says."""
    name, value = variable.name, variable.value
    unknown = value is None or is_placeholder(value)
    if name.endswith("_SOCKET_IFNAME"):
        # Names of a node's interfaces differ; that eth0 is none of them holds for every EKS AMI.
        return unknown or (pod.host_network and value not in {"eth0", "=eth0"})
    if name.startswith("PET_"):
        return not RENDEZVOUS.fullmatch(name)
    by_default = value in AS_BY_DEFAULT.get(name, ())
    # Secrets are the business of `secrets`, for every container.
    elsewhere = is_secret(name, value or "?") or (name == "FI_PROVIDER" and unknown)
    no_efa = ABOUT_EFA.fullmatch(name) is not None and not container.names(EFA)
    no_nvlink = name in _ABOUT_NVLINK and not _has_nvlink(container, pod)
    return by_default or elsewhere or no_efa or no_nvlink


def _has_nvlink(container: Container, pod: Pod) -> bool:
    """Tell whether the container's GPUs surely have NVLink: by type, or by many EFA devices."""
    selector = mapping(pod.spec.get("nodeSelector")) or {}
    types = [name for label in _TYPE_LABELS if (name := text(selector.get(label))) is not None]
    if types:
        return all(name.startswith("p") for name in types)
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


def kind_of_secret(value: str) -> str | None:
    """Say what a value surely is by its form: a token or key of a known service."""
    match = _TOKEN.search(value)
    return _TOKENS[match.lastgroup] if match and match.lastgroup else None


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
