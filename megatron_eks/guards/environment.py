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
from megatron_eks.guards.values import Value, report, warn
from megatron_eks.guards.volumes import mounted, twice

_PASSWORD = re.compile("://[^ /@:$]+:[^ /@$]+@")
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


_CA = ("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_TRUST = tuple((each, r"/.+", "a proxy's certificate is refused", "the bundle") for each in _CA)


@manifest_guard
def variables(manifests: Manifests) -> Iterator[Finding]:
    """Libraries read what they know, some values break a run, and ranks leave a trace (NCCL)."""
    for pod in manifests.pods:
        for container in pod.containers:
            env, job = container["env"], pod.owner.kind in JOBS
            yield from twice(Code.DUPLICATE_VARIABLE, [each["name"] for each in env])
            contexts = _contexts(manifests, pod, container) if job and env else []
            for each in env if job else ():
                empty = not each["value"] and not each["valueFrom"]
                yield from warn(Code.VARIABLE_MISSING, (empty, each, "no value", "write one"))
                yield from _judged(each["name"], each["value"], tuple(contexts))
        if pod.owner.kind in JOBS:
            yield from _missing(manifests, pod)


def _missing(manifests: Manifests, pod: Pod) -> Iterator[Finding]:
    """Report what ranks set, or what a job behind a proxy sets, and this pod does not."""
    env, given = pod.main["env"], {e["name"].text: e["value"] for e in pod.main["env"]}
    ranks = "torchrun" in pod.main["command"].texts and pod.asks(GPU)
    proxied = any(each["configMap"]["name"].text == "ca-bundle" for each in pod.spec["volumes"])
    for name, pattern, why, wanted in (*(_SET if ranks else ()), *(_TRUST if proxied else ())):
        value = given.get(name, env)
        right = name in given and (not value.text or re.fullmatch(pattern, value.text))
        ends = name.startswith("NCCL") and "--expect-efa" in pod.main["args"].texts
        found = f"{name} is {value.raw if name in given else 'not set'}: {why}"
        found += ", and the start-up guard ends the ranks" if ends else ""
        row = (not right, value, found, f"set {name} to {wanted!r}")
        level = Level.ERROR if ends else Level.WARNING
        yield from report(Code.VARIABLE_MISSING, row, level=level)
    if ranks and _QUEUES not in given:
        contexts = _contexts(manifests, pod, pod.main)
        splits = all(each.splits_layers and each.is_hopper_or_before for each in contexts)
        found = f"no {_QUEUES}: Megatron stops at once with tensor or context parallelism"
        yield from warn(Code.VARIABLE_MISSING, (splits, env, found, f"set {_QUEUES} to '1'"))


def _contexts(manifests: Manifests, pod: Pod, container: Value) -> list[Context]:
    words = container["args"].texts
    sizes = [after for word, after in pairwise(words) if word in _SPLITS]
    context = Context(
        host_network=pod.spec["hostNetwork"].raw is True,
        splits_layers=any(size != "1" for size in sizes) if sizes else None,
        fsdp=any("fsdp" in word for word in container["command"].texts),
        shared=tuple(mounted(pod, container, "persistentVolumeClaim")),
    )
    types = node_types(manifests, pod)
    return [replace(context, instance=each) for each in types] or [context]


_judge, _meant = cache(judge_any), cache(meant_by_a_library)  # ranks and jobs have most in common


def _judged(name: Value, value: Value, contexts: tuple[Context, ...]) -> Iterator[Finding]:
    policy, code, level = (
        _judge(name.text, value.text, contexts),
        Code.REFUSED_VARIABLE,
        Level.ERROR,
    )
    if policy.verdict is Verdict.ADVISED_AGAINST:
        code, level = Code.VARIABLE_ADVISED_AGAINST, Level.WARNING
    if policy is not IN_CLEAR and (wanted := _meant(name.text)):
        found = f"no library reads {name.text}"
        yield name.finding(Code.REFUSED_VARIABLE, found, f"did you mean {wanted}?")
    elif policy is not IN_CLEAR and value and policy.verdict not in {Verdict.SET, Verdict.ALLOWED}:
        yield value.finding(code, f"{name.text}: {policy.reason}", policy.instead, level)


@manifest_guard
def secrets(manifests: Manifests) -> Iterator[Finding]:
    """Keep secrets out of manifests, which end in Git (EKS Best Practices, "Secrets")."""
    code, found = Code.SECRET_IN_MANIFEST, "a secret in plain text: it ends in Git and in logs"
    remedy = "mount a Secret that kubectl made as a file, and revoke this one"
    texts = {text for each in manifests.objects for text in _strings(each.body.raw)}
    tokens = {text for text in texts if TOKEN.search(text) or _PASSWORD.search(text)}
    for each in manifests.objects:
        places = _texts(each.body) if tokens else ()
        yield from (text.finding(code, found, remedy) for text in places if text.text in tokens)
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


def _strings(raw: Json) -> Iterator[str]:
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict | list):
        for inner in raw.values() if isinstance(raw, dict) else raw:
            yield from _strings(inner)


def _texts(value: Value) -> Iterator[Value]:
    for inner in (*value, *(each for _, each in value.items())):
        yield from _texts(inner)
    if value.text:
        yield value
