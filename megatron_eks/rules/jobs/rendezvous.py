"""Rules over how a PyTorchJob's ranks are started: processes on each node, torchrun's flags."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, MAIN_CONTAINER, Container, Manifest, Pod

_FLAG = re.compile(
    r"(?<![\w-])--(?P<name>nnodes|node[_-]rank|master[_-](?:addr|port)|rdzv[_-][a-z_-]+"
    r"|nproc[_-]per[_-]node|standalone)(?=[=\s\"']|$)"
    r"(?:(?:=|[ \t]+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s;&|\\-][^\s;&|]*))?"
)
_NAMED = re.compile(r"\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>\w+)\}|\$\((?P<given>\w+)\)")
_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
# What the training operator or torchrun itself sets, whatever the object says.
_SET_ELSEWHERE = re.compile(r"(PET_|MASTER_|LOCAL_|GROUP_).*|RANK|NODE_RANK|WORLD_SIZE|HOSTNAME")
_BRANCHES = re.compile(r"(^|[\s;])(if|case|for|while|until|\[\[?|test)\s|\|\|")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def processes(manifest: Manifest) -> Iterator[Finding]:
    """Require one process for each GPU, written as a text.

    kubeflow/trainer v1.9.4: the CRD takes a string, the webhook refuses the same number in
    elasticPolicy; torchrun's "auto" starts a process for each CPU where it sees no GPU.
    """
    if manifest.pytorch_replicas is None:
        return
    gpus = gpus_of(manifest)
    value = manifest.spec.get("nprocPerNode")
    elastic = (mapping(manifest.spec.get("elasticPolicy")) or {}).get("nProcPerNode")
    if is_absent(value) and is_absent(elastic):
        launched = all(each.has_launcher for each in _main_containers(manifest))
        if gpus and launched and not _has_count(manifest):
            found = "not given, so torchrun starts as many processes as it sees GPUs, or else CPUs"
            yield _wrong(manifest, found, gpus, Level.WARNING)
    elif is_absent(value):
        if gpus and number(elastic) not in {None, gpus}:
            yield _wrong(manifest, _uneven(number(elastic), gpus), gpus)
    elif not is_absent(elastic):
        found = "given here and in elasticPolicy: the webhook refuses the two together"
        yield _wrong(manifest, found, gpus)
    else:
        yield from _process_text(manifest, text(value), shown(value), gpus)


def _has_count(manifest: Manifest) -> bool:
    """Tell whether a flag says how many processes to start."""
    flags = (
        flag for container in _main_containers(manifest) for _, flag, _ in launcher_flags(container)
    )
    return "nproc-per-node" in flags


def _process_text(
    manifest: Manifest, written: str | None, as_shown: str, gpus: int
) -> Iterator[Finding]:
    if written is None:
        yield _wrong(manifest, f"{as_shown} is not a text, which the API server demands", gpus)
    # With "auto" torchrun takes the GPUs wherever it sees any.
    elif written not in {"auto", "gpu"} and not is_placeholder(written):
        count = number(written)
        if written == "cpu":
            if gpus:
                yield _wrong(manifest, "a process for each CPU, and not for each GPU", gpus)
        elif count is None:
            yield _wrong(manifest, f"{as_shown} is no number of processes", gpus)
        # Another launcher than torchrun may start several ranks from one process.
        elif (
            gpus and count != gpus and all(may_launch(each) for each in _main_containers(manifest))
        ):
            yield _wrong(manifest, _uneven(count, gpus), gpus)


def _uneven(processes: int | None, gpus: int) -> str:
    return f"{processes} processes for {gpus} GPU{'' if gpus == 1 else 's'}"


def _wrong(manifest: Manifest, found: str, gpus: int, level: Level = Level.ERROR) -> Finding:
    remedy = f'write nprocPerNode: "{gpus or 8}"'
    return manifest.find(Code.PROCESSES_PER_NODE, ("spec", "nprocPerNode"), found, remedy, level)


def launcher_flags(container: Container) -> Iterator[tuple[Path, str, str]]:
    """Return torchrun's flags on a command line, each with its place and value.

    A list of words and a shell's line say the same; so does a variable that holds one value.
    """
    words = container.words
    following = [word for _, word in words[1:]]
    for (path, word), next_word in zip(words, [*following, ""], strict=False):
        if "--" not in word:
            continue
        for match in _FLAG.finditer(_COMMENT.sub("", word) if "#" in word else word):
            alone = match["value"] is None and match.end() == len(word)
            value = next_word if alone else match["value"] or ""
            yield path, match["name"].replace("_", "-"), held(container, value.strip("\"'"))


def held(container: Container, value: str) -> str:
    """Return what a variable surely holds, by the container or by its shell; else the value."""
    match = _NAMED.fullmatch(value)
    if match is None:
        return value
    name = match["name"] or match["braced"] or match["given"]
    in_shell = _SHELL.fullmatch(container.words[0][1]) is not None
    if _SET_ELSEWHERE.fullmatch(name) or not (in_shell or match["given"]):
        return value
    line = container.line
    assigned = re.findall(rf"(?<![\w$-]){name}=(\"[^\"]*\"|'[^']*'|[^\s;&|]*)", line)
    if assigned and not match["given"]:
        only = assigned[0].strip("\"'")
        sure = len(assigned) == 1 and not re.search(r"[$`]", only) and not _BRANCHES.search(line)
        return only if sure and only else value
    given = [each.value for each in container.variables if each.name == name]
    single = given[0] if len(given) == 1 and not assigned else None
    return value if single is None or "$" in single else single


def in_command(container: Container, name: str) -> str:
    """Write a variable as a command reads it: by its shell, or else by Kubernetes.

    Kubernetes, "Define a Command and Arguments for a Container": it puts in `$(NAME)` alone, which
    in a shell is a substitution of a command.
    """
    words = container.words
    in_shell = bool(words) and _SHELL.fullmatch(words[0][1]) is not None
    return f"${name}" if in_shell else f"$({name})"


def left_of(container: Container, name: str, word: str) -> str:
    """Say what a command gets for a variable that nothing sets.

    Kubernetes, Container.command: a reference that cannot be resolved is left as it is; a shell
    takes an empty text for it.
    """
    written = re.search(rf"\$(\({name}\)|{{{name}}}|{name}\b)", word)
    if written is None or in_command(container, name) == f"${name}":
        return "it is empty"
    return f"{written[0]} stays as it is written"


def may_launch(container: Container) -> bool:
    """Tell whether torchrun starts here, by the command line or by an image that hides it."""
    return is_absent(container.body.get("command")) or container.has_launcher


def _main_containers(manifest: Manifest) -> list[Container]:
    found = [_main_container(pod) for pod in manifest.pods]
    return [container for container in found if container is not None]


def _main_container(pod: Pod) -> Container | None:
    named = (each for each in pod.containers if each.name == MAIN_CONTAINER and not each.is_init)
    return next(named, None)


def gpus_of(manifest: Manifest) -> int:
    """Return the GPUs of a rank's container; 0 where there are none or nobody can know."""
    amounts = [
        container.amount(GPU)
        for container in _main_containers(manifest)
        # Two numbers are a mistake of their own, and nobody can tell which one is meant.
        if container.requested(GPU) == container.amount(GPU)
    ]
    return max((int(amount) for amount in amounts if amount is not None and amount > 0), default=0)
