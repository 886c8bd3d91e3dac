"""Guards of the variables that programs read, and of secrets where anybody can read them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

from megatron_eks.catalog.environment import Verdict, is_secret
from megatron_eks.catalog.environment_names import meant_by_a_library
from megatron_eks.catalog.environment_verdicts import IN_CLEAR, Context, judge_any
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.quotas import GPU, JOBS, node_types
from megatron_eks.guards.values import Value, report
from megatron_eks.guards.volumes import twice

_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
_SPLITS = ("--tensor-model-parallel-size", "--context-parallel-size")
_SEGMENTS = "expandable_segments:True"
# What ranks set: the values that serve, why, and what to write (the paths are in the pod).
_SET = (
    ("NCCL_DEBUG", r"(?i)INFO|TRACE", "NCCL does not say whether it uses EFA", "INFO"),
    ("NCCL_DEBUG_SUBSYS", r"(?i)(?=.*INIT)(?=.*NET).*|ALL", "the log leaves out EFA", "INIT,NET"),
    ("NCCL_DEBUG_FILE", r"/.+%p.*", "the start-up guard finds no log", "/tmp/nccl/%h.%p.log"),  # noqa: S108 -- in the pod
    ("PYTORCH_ALLOC_CONF", rf".*{_SEGMENTS}.*", "memory fragments until a step fails", _SEGMENTS),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE", r"[1-9]\d*", "nobody sees which rank hangs", "2000"),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT", r"1|true", "nobody sees which rank hangs", "1"),
    ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", r"/.+", "dumps of a hang are lost", "/shared/logs/dump-"),
    ("TRITON_CACHE_DIR", r"/.+", "Triton compiles into a read-only home", "/tmp/triton"),  # noqa: S108 -- in the pod
)


@manifest_guard
def variables(manifests: Manifests) -> Iterator[Finding]:
    """Libraries read what they know, and some values break a run (aws-ofi-nccl; NCCL; torch)."""
    for pod in manifests.pods:
        for container in pod.containers:
            contexts = _contexts(manifests, pod, container)
            yield from twice(Code.DUPLICATE_VARIABLE, [each["name"] for each in container["env"]])
            for each in container["env"] if pod.owner.kind in JOBS else ():
                row = (not each["value"] and not each["valueFrom"], each, "no value", "write one")
                yield from report(Code.VARIABLE_MISSING, row, level=Level.WARNING)
                yield from _judged(each["name"], each["value"], contexts)


@manifest_guard
def job_variables(manifests: Manifests) -> Iterator[Finding]:
    """Ranks say whether EFA carries them, and leave a trace (NCCL; torch, "ProcessGroupNCCL")."""
    for pod in (each for job in manifests.of("PyTorchJob") for each in job.pods):
        env, given = pod.main["env"], {e["name"].text: e["value"] for e in pod.main["env"]}
        for name, pattern, why, wanted in _SET if pod.asks(GPU) else ():
            value = given.get(name, env)
            right = name in given and (not value.text or re.fullmatch(pattern, value.text))
            ends = name.startswith("NCCL") and "--expect-efa" in pod.main["args"].texts
            said = f"{name} is {value.raw if name in given else 'not set'}: {why}"
            found = f"{said}, and the start-up guard ends the ranks" if ends else said
            row = (not right, value, found, f"set {name} to {wanted!r}")
            level = Level.ERROR if ends else Level.WARNING
            yield from report(Code.VARIABLE_MISSING, row, level=level)
        contexts = _contexts(manifests, pod, pod.main)
        splits = all(each.splits_layers and each.is_hopper_or_before for each in contexts)
        found = f"no {_QUEUES}: Megatron stops at once with tensor or context parallelism"
        if splits and pod.asks(GPU) and _QUEUES not in given:
            yield env.finding(Code.VARIABLE_MISSING, found, f"set {_QUEUES} to '1'")


@manifest_guard
def secrets(manifests: Manifests) -> Iterator[Finding]:
    """Keep secrets out of manifests, which end in Git (EKS Best Practices, "Secrets")."""
    code, found = Code.SECRET_IN_MANIFEST, "a secret in plain text: it ends in Git and in logs"
    remedy = "mount a Secret that kubectl made as a file, and revoke this one"
    for each in manifests.objects:
        if any(map(_is_token, _strings(each.body.raw))):
            tokens = (value for value in _texts(each.body) if _is_token(value.text))
            yield from (value.finding(code, found, remedy) for value in tokens)
        for key in ("data", "stringData") if each.kind == "Secret" else ():
            row = (each[key].raw, each[key], f"base64 hides nothing: {found}", "make it by kubectl")
            yield from report(code, row)
    for container in (each for pod in manifests.pods for each in pod.containers):
        for name, value in _named(container):
            plain = value.text and not value.text.startswith(("/", "$", "--"))
            if plain and is_secret(name, value.text) and not TOKEN.search(value.text):
                yield value.finding(code, f"{name}: {found}", remedy)


def _named(container: Value) -> Iterator[tuple[str, Value]]:
    """Return variables and options, each with its value."""
    yield from ((each["name"].text, each["value"]) for each in container["env"])
    words = list(container["args"])
    for word, after in pairwise([*words, *words[-1:]]):
        flag, equals, given = word.text.partition("=")
        if flag.startswith("--"):
            yield flag.strip("-").replace("-", "_"), replace(word, raw=given) if equals else after


def _contexts(manifests: Manifests, pod: Pod, container: Value) -> list[Context]:
    words = container["args"].texts
    sizes = [after for word, after in pairwise(words) if word in _SPLITS]
    claims = {e["name"].text for e in pod.spec["volumes"] if e["persistentVolumeClaim"]}
    mounts = (e for e in container["volumeMounts"] if e["name"].text in claims)
    context = Context(
        host_network=pod.spec["hostNetwork"].raw is True,
        splits_layers=any(size != "1" for size in sizes) if sizes else None,
        fsdp=any("fsdp" in word for word in container["command"].texts),
        shared=tuple(mount["mountPath"].text for mount in mounts),
    )
    types = node_types(manifests, pod)
    return [replace(context, instance=each) for each in types] or [context]


def _judged(name: Value, value: Value, contexts: list[Context]) -> Iterator[Finding]:
    wanted, policy = meant_by_a_library(name.text), judge_any(name.text, value.text, contexts)
    advised, judged = policy.verdict is Verdict.ADVISED_AGAINST, policy is not IN_CLEAR
    code = Code.VARIABLE_ADVISED_AGAINST if advised else Code.REFUSED_VARIABLE
    level = Level.WARNING if advised else Level.ERROR
    if wanted and judged:
        found = f"no library reads {name.text}"
        yield name.finding(Code.REFUSED_VARIABLE, found, f"did you mean {wanted}?")
    elif value and judged and policy.verdict not in {Verdict.SET, Verdict.ALLOWED}:
        yield value.finding(code, f"{name.text}: {policy.reason}", policy.instead, level)


@cache
def _is_token(text: str) -> bool:
    """Tell a token, or a URL with a password; ranks and jobs have most texts in common."""
    return bool(TOKEN.search(text) or re.search("://[^ /@:$]+:[^ /@$]+@", text))


def _strings(raw: Json) -> Iterator[str]:
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict | list):
        for inner in raw.values() if isinstance(raw, dict) else raw:
            yield from _strings(inner)


def _texts(value: Value) -> Iterator[Value]:
    inner = value if isinstance(value.raw, list) else (each for _, each in value.items())
    yield from (text for each in inner for text in _texts(each))
    if value.text:
        yield value
