"""Guards of what programs are told: variables, options, files, and secrets that all can read."""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import pairwise

from megatron_eks.catalog import megatron_options
from megatron_eks.catalog.environment import Verdict, is_secret
from megatron_eks.catalog.environment_names import meant_by_a_library
from megatron_eks.catalog.environment_verdicts import IN_CLEAR, Context, judge_any
from megatron_eks.catalog.program_options import PROGRAM_OPTIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.quotas import EFA, GPU, JOBS, node_types
from megatron_eks.guards.values import YES, Value, report, warn
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
_PROGRAMS = "/opt/megatron-eks/programs/"
_SCRIPT = re.compile(r"/megatron-eks/.*\.py$")
_REPEATED = {"--input", "--json-key"}
_CHANGED = "a change under a running job gives ranks that restart another configuration"
_Mistake = tuple[Value, str, str]


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
        level, row = Level.ERROR if ends else Level.WARNING, (not right, value, found)
        yield from report(Code.VARIABLE_MISSING, (*row, f"set it to {wanted!r}"), level=level)
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
    policy = _judge(name.text, value.text, contexts)
    advised = policy.verdict is Verdict.ADVISED_AGAINST
    code = Code.VARIABLE_ADVISED_AGAINST if advised else Code.REFUSED_VARIABLE
    level = Level.WARNING if advised else Level.ERROR
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
            said = f"base64 hides nothing: {found}"
            yield from report(code, (each[key].raw, each[key], said, "make it by kubectl"))
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


@manifest_guard
def programs(manifests: Manifests) -> Iterator[Finding]:
    """Give a program options and files it knows, or it ends on paid nodes (docs/images.md)."""
    for pod in manifests.pods:
        for place, found, remedy in _mistakes(pod):
            yield place.finding(Code.TRAINING_FLAG, f"{found}: the program stops", remedy)
        devices = str(pod.main["resources"]["limits"][EFA].quantity or 0)
        for option, value in pairwise(pod.main["args"]):
            if option.text in {"--expect-efa", "--expect"}:
                why = f"the container asks for {devices} EFA devices, and the program stops"
                yield from value.must_be(Code.EXTENDED_RESOURCES, devices, why=why)
        for name in (each["configMap"]["name"].text for each in pod.spec["volumes"]):
            kept = manifests.named("ConfigMap", name, pod.owner.namespace)
            if kept and name.startswith(f"{pod.owner.name}-"):
                yield from _configuration(pod, kept)


def _configuration(pod: Pod, kept: Object) -> Iterator[Finding]:
    yield from kept["immutable"].must_be(Code.REPLICAS_DIFFER, YES, why=_CHANGED)
    for before, word in pairwise(pod.main["args"]):
        file = word.text.rpartition("/")[2]
        if before.text == "--config" and not _is_json(kept["data"][file].text):
            found = f"no {file}, or no JSON in it: the program stops at its start"
            yield kept["data"][file].finding(Code.MISSING_OBJECT, found, "write it as JSON there")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _mistakes(pod: Pod) -> Iterator[_Mistake]:
    args, words = pod.main["args"], [*pod.main["command"], *pod.main["args"]]
    at = next((n for n, e in enumerate(words) if _SCRIPT.search(e.text)), len(words))
    name, own = words[at].text.removeprefix(_PROGRAMS) if words[at:] else "", words[at + 1 :]
    if name not in PROGRAM_OPTIONS:
        for close in get_close_matches(name, PROGRAM_OPTIONS, 1, 0.8):
            yield words[at], f"no program {name!r} in the images", f"name {_PROGRAMS}{close}"
        return
    starts = "torchrun" if name.startswith("train_") or name == "allreduce_bench.py" else "python3"
    again = "python3" in [each.text for each in words[1:at]]
    if words[0].text not in {starts, "sh", "bash"} or again:
        yield words[0], f"{words[0].raw!r} starts {name}", f"start it with {starts} alone"
    end = next((n for n, word in enumerate(own) if word.text == "--"), len(own))
    known = {each.rstrip("=!"): each for each in PROGRAM_OPTIONS[name].split()}
    yield from _options(known, {e for e, marks in known.items() if e == marks}, own[:end])
    if name == "train_megatron.py":
        yield from _options(megatron_options.OPTIONS, megatron_options.FLAGS, own[end + 1 :])
        if end == len(own):
            yield args, "no -- before the options for Megatron", 'add "--" before them'
    needed = {option for option, marks in known.items() if marks.endswith("!")}
    several = pod.asks(EFA) and len(pod.owner.pods) > 1
    needed |= {"--expect-efa", "--heartbeats"} & known.keys() if several else set()
    for option in sorted(needed - {word.text.partition("=")[0] for word in own[:end]}):
        yield args, f"no {option}, or it does not notice a lost node", f"add {option}"


def _options(
    known: Collection[str], alone: Collection[str], words: list[Value]
) -> Iterator[_Mistake]:
    """Check names of options, and that a value follows where one must, and only there."""
    seen, valued = set[str](), False
    for word, after in pairwise([*words, *words[-1:]]):
        option, equals, _ = word.text.partition("=")
        if not option.startswith("--"):
            if not valued:
                yield word, f"{word.raw!r} follows no option", "remove it, or write its option"
            continue
        valued = option not in alone and not equals
        if option not in known or option in seen - _REPEATED:
            close = [e for e in get_close_matches(option, known, 1) if e != option]
            remedy = f"write {close[0]}" if close else "remove it"
            yield word, f"no option {option}, or it is given twice", remedy
        elif valued and (not after.text or after.text.startswith("--")):
            yield word, f"{option} without a value", "write its value after it"
        seen.add(option)
