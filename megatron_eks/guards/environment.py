"""Guards of what programs are told: variables, options, files, and secrets that all can read."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import pairwise, product, takewhile
from math import prod

from megatron_eks.catalog.environment import Verdict, is_secret
from megatron_eks.catalog.environment_verdicts import IN_CLEAR, Context, judge_any
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.program_places import PACKAGE, ZIP
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.node_types import EFA, GPU, node_types
from megatron_eks.guards.values import Found, Value, report, warn
from megatron_eks.guards.volumes import mounted, twice
from megatron_eks.programs import PROGRAM_OPTIONS

_PASSWORD = re.compile(
    r"://[^ /@:$]+:[^ /@$]+@|-----BEGIN [A-Z ]*PRIVATE KEY|(?i:wandb|key)\W{1,9}[0-9a-f]{40}\b"
)
# NAME=VALUE, "name": "value", and `password VALUE` of a netrc; or neither a path nor $NAME.
_SAID = re.compile(
    r"(?<![\w-])-*([\w-]{0,40}(?i:token|secret|passw|credential|key)\w*)[\"']?[\s:=]\s*"
    r"[\"']?(?![/$]|--)((?<=[\"'])[^\"'\n]+(?=[\"'])|(?=\S*\d)[\w+.~][\w+/.~=-]{5,})"
)
_SNAKE = re.compile("-|(?<=[a-z])(?=[A-Z])")
_SPLITS = ("--tensor-model-parallel-size", "--context-parallel-size")
_DIVIDES = (*_SPLITS, "--pipeline-model-parallel-size")
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
_OURS = PACKAGE.partition(".")[0]
_COUNTS = {each.efa_interfaces for each in INSTANCES.values()} - {0}


@manifest_guard
def variables(manifests: Manifests) -> Found:
    """Libraries read what they know, some values break a run, and ranks leave a trace (NCCL)."""
    for pod in (each for each in manifests.pods if each.of_job):
        for container in (each for each in pod.containers if each["env"]):
            yield from twice(Rule.DUPLICATE_VARIABLE, [each["name"] for each in container["env"]])
            contexts = tuple(_contexts(manifests, pod, container))
            for each in container["env"]:
                empty = not each["value"] and not each["valueFrom"]
                yield from warn(Code.VARIABLE_MISSING, empty, each, "no value", "write one")
                yield from _judged(each["name"].text, each["value"], contexts)
        env, given = pod.main["env"], {e["name"].text: e["value"] for e in pod.main["env"]}
        ranks = "torchrun" in pod.main["command"].texts and pod.asks(GPU)
        proxied = any(e["configMap"]["name"].text == "ca-bundle" for e in pod.spec["volumes"])
        for name, pattern, why, wanted in (*(_SET if ranks else ()), *(_TRUST if proxied else ())):
            value = given.get(name, env)
            right = name in given and (not value.text or re.fullmatch(pattern, value.text))
            goes_on = not name.startswith("NCCL") or "--expect-efa" not in pod.main["args"].texts
            found = f"{name} is {value.raw if name in given else 'not set'}: {why}"
            row = (not right, value, found, f"set it to {wanted!r}")
            yield from report(Code.VARIABLE_MISSING, *row, warns=goes_on)


def _contexts(manifests: Manifests, pod: Pod, container: Value) -> list[Context]:
    sizes = [after for word, after in pairwise(container["args"].texts) if word in _SPLITS]
    context = Context(
        host_network=pod.spec["hostNetwork"].raw is True,
        splits_layers=any(size != "1" for size in sizes) if sizes else None,
        fsdp=any("fsdp" in word for word in container["command"].texts[-1:]),
        shared=tuple(mounted(pod, container, "persistentVolumeClaim")),
    )
    return [replace(context, instance=each) for each in node_types(manifests, pod)] or [context]


_judge = cache(judge_any)  # ranks and jobs have most in common


def _judged(name: str, value: Value, contexts: tuple[Context, ...]) -> Found:
    policy = _judge(name, value.text, contexts)
    advice = policy.verdict is Verdict.ADVISED_AGAINST
    code = Rule.VARIABLE_ADVISED_AGAINST if advice else Rule.REFUSED_VARIABLE
    wrong = policy is not IN_CLEAR and policy.verdict not in {Verdict.SET, Verdict.ALLOWED}
    found = f"{name}: {policy.reason}"
    yield from report(code, value and wrong, value, found, policy.instead, warns=advice)


@manifest_guard
def secrets(manifests: Manifests) -> Found:
    """Keep secrets out of manifests, which end in Git (EKS Best Practices, "Secrets")."""
    code, found = Rule.SECRET_IN_MANIFEST, "a secret in plain text: it ends up in Git and in logs"
    remedy = "create a Secret with kubectl, mount it as a file, and revoke this one"
    for each in manifests.objects:
        for value in (part for part in each.parts if _is_token(part.text)):
            yield value.finding(code, found, remedy)
        for key in ("data", "stringData") if each.kind == "Secret" else ():
            said = f"base64 hides nothing: {found}"
            yield from report(code, each[key], each[key], said, "create it with kubectl")
    for name, value in _told(manifests):
        wrong = (secret := _secret_in(f'{name}="{value.text}"')) and not _is_token(value.text)
        yield from report(code, wrong, value, f"{secret}: {found}", remedy)


def _told(manifests: Manifests) -> Iterator[tuple[str, Value]]:
    """Return variables, options, annotations and what ConfigMaps hold, each with its name."""
    for each in manifests.objects:
        yield from each["metadata"]["annotations"].items()
        yield from each["data"].items() if each.kind == "ConfigMap" else ()
    for container in (each for pod in manifests.pods for each in pod.containers):
        yield from ((each["name"].text, each["value"]) for each in container["env"])
        words = [*container["command"], *container["args"]]
        for before, word in pairwise([*words[:1], *words]):
            yield before.text.partition("=")[0], word


@cache  # as above
def _secret_in(said: str) -> str:
    """Return the name of a secret that a text such as NAME="VALUE" gives away."""
    named = [e[1] for e in _SAID.finditer(said) if is_secret(_SNAKE.sub("_", e[1]), e[2])]
    return [*named, said.partition("=")[0] if _is_token(said) else ""][0]


@cache
def _is_token(text: str) -> bool:
    return bool(TOKEN.search(text) or _PASSWORD.search(text))


@manifest_guard
def programs(manifests: Manifests) -> Found:
    """Start a program that is there, with what it needs, or it ends on paid nodes."""
    for pod in manifests.pods:
        for place, found, remedy in _mistakes(pod):
            yield place.finding(Rule.TRAINING_FLAG, f"{found}: the program stops", remedy)
        args = [*pod.main["args"]]
        pairs = [(word, after) for word, after in pairwise(args) if word.text in _DIVIDES]
        split = prod(int(after.text) for _, after in pairs if after.text.isdecimal())
        for _, size in pairs[:1]:
            ranks = pod.owner.wanted * int(pod.main["resources"]["limits"][GPU].quantity or 0)
            found = f"groups of {split} GPUs do not divide {ranks}: Megatron stops at its start"
            row = (split and ranks % split, size, found, "write sizes that divide all GPUs")
            yield from report(Rule.TRAINING_FLAG, *row)
        given = {word.text: after for word, after in pairwise(args)}
        yield from _sizes(pod, given, split, fits=bool(node_types(manifests, pod)))
        if pod.main["command"].texts[-1:] == [f"{PACKAGE}.torchrun_rank"]:
            # What comes behind is the user's program's, which may take a word twice.
            args = [*takewhile(lambda each: each.text != "--", args)]
        for before, word in pairwise(args):
            again = before.text == word.text and before.path != word.path
            found = f"{word.text} appears twice: the program stops, or reads one as a value"
            yield from report(Rule.TRAINING_FLAG, again, word, found, "keep one")
        for each, (block, file) in product(pod.spec["volumes"], _files(pod)):
            name = each["configMap"]["name"].text
            kept = manifests.named("ConfigMap", name, pod.owner.namespace)
            # Of a large program the file says where in S3 it is.
            there = kept and (kept[block][file].text or kept["data"][f"{file}.s3"].text)
            if kept and name.startswith(f"{pod.owner.name}-") and not there:
                found = f"no {file}: the program stops at its start"
                yield kept[block].finding(Rule.MISSING_OBJECT, found, "add it there")


def _sizes(pod: Pod, given: Mapping[str, Value], split: int, *, fits: bool) -> Found:
    gpus, has = (int(pod.main["resources"]["limits"][e].quantity or 0) for e in (GPU, EFA))
    whole, micro = given.get("--global-batch-size"), given.get("--micro-batch-size")
    if whole and micro and micro.text.isdecimal() and whole.text.isdecimal() and split:
        step = int(micro.text) * (pod.owner.wanted * gpus // split)
        if step and int(whole.text) % step:
            found = f"no multiple of {step}, which a step of all replicas takes: Megatron stops"
            yield whole.finding(Rule.TRAINING_FLAG, found, f"write a multiple of {step}")
    load, save, efa = (given.get(each) for each in ("--load", "--save", "--expect-efa"))
    if load and save and load.text != save.text:
        found = "a restart begins from here again, and what was saved since is lost"
        yield load.finding(Rule.CHECKPOINTS_LOST, found, f"write {save.text}, as --save has it")
    often, last = (given.get(each) for each in ("--save-interval", "--train-iters"))
    if often and last and (often.quantity or 0) > (last.quantity or 1 << 60):
        found = "more than all iterations: a restart begins at the first one"
        yield often.finding(Rule.CHECKPOINTS_LOST, found, "write fewer", warns=True)
    if efa and efa.text != str(has) and has in _COUNTS and fits:
        found = f"the pod has {has}: NCCL may use fewer than it could, and nobody is told"
        yield efa.finding(Rule.TRAINING_FLAG, found, f"set it to {has}")


def _files(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield what a pod reads of its job's ConfigMap, by the block that it is in."""
    # Behind `--` stands what a program of the user's is given.
    own = takewhile("--".__ne__, pod.main["args"].texts)
    for before, word in pairwise((*pod.main["command"].texts, *own)):
        if before == "--config":
            yield "data", word.rpartition("/")[2]
        elif word.startswith("--code=") or word.endswith(f"/{ZIP}"):
            yield "binaryData", word.rpartition("/")[2]


def _mistakes(pod: Pod) -> Iterator[tuple[Value, str, str]]:
    words = [*pod.main["command"], *pod.main["args"]]
    # `python3 PLACE record DIRECTORY DAYS` stands before what is started, then what finds a run id.
    for name, count in (("record", 5), (f"{PACKAGE}.etcd_run_id", 3)):
        words = words[count * (name in [each.text for each in words[2:3]]) :]
    texts = [each.text for each in words]
    if f"{PACKAGE}.torchrun_node" in texts[2:3] and "--" in texts:
        words = words[texts.index("--") + 1 :]
    at = next((n for n, e in enumerate(words) if e.text.startswith(_OURS)), len(words))
    name = words[at].text.removeprefix(f"{PACKAGE}.") if words[at:] else ""
    if name not in PROGRAM_OPTIONS:
        for close in get_close_matches(name, PROGRAM_OPTIONS, 1, 0.8):
            yield words[at], f"no program {name!r} in the images", f"name {PACKAGE}.{close}"
        return
    if words[at - 1].text != "-m":
        yield words[at - 1], f"{name} is started as a file, but is a module", "put -m before it"
    ranks = name.startswith(("train_", "torchrun_")) or name == "allreduce_bench"
    starts = "torchrun" if ranks else "python3"
    again = "python3" in [each.text for each in words[1:at]]
    if words[0].text not in {starts, "sh", "bash"} or again:
        yield words[0], f"{words[0].raw!r} starts {name}", f"start it with {starts} alone"
    given = {word.text.partition("=")[0] for word in words[at + 1 :]}
    for option in sorted({*PROGRAM_OPTIONS[name].split()} - given):
        yield pod.main["args"], f"no {option}, which {name} needs", f"add {option}"
