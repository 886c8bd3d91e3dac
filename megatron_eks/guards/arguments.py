"""Guards of arguments: options of this project's programs and of Megatron, and their files."""

import json
import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from itertools import pairwise

from megatron_eks.catalog import megatron_options
from megatron_eks.catalog.program_options import PROGRAM_OPTIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.quotas import EFA
from megatron_eks.guards.values import YES, Value

_PROGRAMS = "/opt/megatron-eks/programs/"
_SCRIPT = re.compile(r"/megatron-eks/.*\.py$")
_REPEATED = {"--input", "--json-key"}
_CHANGED = "a change under a running job gives ranks that restart another configuration"
_Mistake = tuple[Value, str, str]


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
    if words[0].text not in {starts, "sh", "bash"} or (starts == "python3" and at > 1):
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
