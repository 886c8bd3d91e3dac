"""Rule over variables in a launcher's options that neither the pod nor its operator sets."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.shell_words import FROM_OTHERS, IN_PODS
from megatron_eks.rules.jobs.training_flags import megatron_flags
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_NAMED = re.compile(r"\$(?:(?P<name>[A-Z][A-Z0-9_]*)|\{(?P<braced>[A-Z][A-Z0-9_]*)\})")
_SOURCED = re.compile(r"(^|[\s;&])(source|\.|eval)\s|\bread\b|<<")
_OF_RANKS = frozenset(
    {
        *("master-addr", "master-port", "nnodes", "node-rank", "nproc-per-node", "rdzv-endpoint"),
        "rdzv-id",
    }
)
_PLACES = frozenset({"--data-cache-path", "--data-path", "--load", "--save", "--tokenizer-model"})
_INDEXED = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
# What images of schedulers bring, or a rule of its own judges.
_ELSEWHERE = re.compile(
    r"SLURM_|OMPI_|SM_|GPU|NVIDIA|CUDA|HOME$|PWD$|USER$|TMPDIR$|HOST|RDZV_|NUM_GPUS"
)

# Bash Reference Manual, "Bash Variables".
_OF_SHELLS = frozenset(
    {"BASHPID", "EPOCHREALTIME", "EPOCHSECONDS", "LINENO", "PPID", "RANDOM", "SECONDS", "UID"}
)


def values(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a launcher's option that is empty, or stays as it is written.

    POSIX, "Shell Command Language", 2.6.2: an unset variable is an empty text; Kubernetes, "Define
    a Command and Arguments for a Container": without a shell nobody puts anything in.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            told = container.is_init or not container.has_launcher or container.body.get("envFrom")
            if told or _SOURCED.search(container.line) or is_template(manifest, pod, container):
                continue
            known = {each.name for each in container.variables}
            for path, flag, value in _options(container):
                match = _NAMED.search(value)
                name = (match["name"] or match["braced"]) if match else ""
                # A loop, or a default in braces, sets it too.
                own = re.search(rf"(?<![\w${{]){name}\b|\b{name}:?=", container.line)
                if not name or name in known or own:
                    continue
                # What stays as it is, with all its letters, is not set by others either.
                # Kubernetes alone numbers the pods of a Job, and by one name.
                its_number = flag == "--node-rank" and name.startswith("JOB_")
                by_others = FROM_OTHERS.match(name) and not its_number
                elsewhere = by_others or _ELSEWHERE.search(name)
                shell = container.words[0][1].endswith("sh")
                if IN_PODS.fullmatch(name) or (shell and (elsewhere or name in _OF_SHELLS)):
                    continue
                found = f"{flag} {shown(value)}: nothing here sets {name}"
                remedy = f"add {name} to env, unless the image sets it, or write its value"
                if not shell:
                    found = (
                        f"{flag} {shown(value)}: no shell here puts in {name}: it stays as it is"
                    )
                    remedy = f"write its value, or add {name} to env and write $({name})"
                level = Level.WARNING
                if flag == "--node-rank" and _is_counted(manifest, pod, container):
                    remedy, level = "write $JOB_COMPLETION_INDEX", Level.ERROR
                yield Finding(Code.NOT_EXPANDED, path, found, remedy, level)


def _is_counted(manifest: Manifest, pod: Pod, container: Container) -> bool:
    """Tell whether pods differ in their index alone, whatever their image sets for all of them.

    A shell that logs in reads files of the image, which may compute anything.
    """
    indexed = (manifest.group, manifest.kind) in _INDEXED
    plain = [word for path, word in container.words[:2] if path[-2] == "command"]
    return indexed and (pod.replicas or 1) > 1 and plain[1:] == ["-c"]


def _options(container: Container) -> Iterator[tuple[Path, str, str]]:
    """Return the options that a run cannot do without: where it meets, reads and writes."""
    first = container.words[0][1] if container.words else ""
    shell = first.endswith("sh")
    for path, flag, value in launcher_flags(container):
        if flag in _OF_RANKS and shell:
            yield path, f"--{flag}", value
    # A whole value may be filled in by whatever writes the file; a part of a path is a name.
    for path, flag, value in megatron_flags(container) if shell else ():
        if flag in _PLACES and not _NAMED.fullmatch(value):
            yield path, flag, value
    for path, word in container.words if not shell else ():
        flag, _, value = word.partition("=")
        if flag.startswith("--") and not _NAMED.fullmatch(value):
            yield path, flag, value


def is_template(manifest: Manifest, pod: Pod, container: Container) -> bool:
    """Tell whether an engine fills in other parts of the object, and so perhaps this one."""
    selector = mapping(pod.spec.get("nodeSelector")) or {}
    parts = (manifest.name, container.body.get("image"), *selector.values())
    written = [text(each) or "" for each in parts]
    return any(map(is_placeholder, written)) or "$" in str(container.body.get("resources"))
