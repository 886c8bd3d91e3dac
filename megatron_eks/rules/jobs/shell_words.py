"""Rules over words of a command that a shell would read, and that none reads, or drops."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import is_absent, is_placeholder, items, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Variable

_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_SCRIPT_FLAG = re.compile(r"-[a-z]*c|-c")
_NAMED = re.compile(r"(?<![\\$])\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_REFERENCE = re.compile(r"(?<!\$)\$\((?P<name>[A-Z][A-Z0-9_]*)\)")
# What Kubernetes, EKS, and controllers of jobs put into pods, and no manifest shows.
FROM_OTHERS = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\w+)?)$|AWS_|VC_|VK_|LWS_|JOB_|JOBSET_|NVIDIA_|RAY_"
    r"|KUBERNETES_|OMPI_|TF_CONFIG|PYTHONUNBUFFERED|TPU_|[A-Z]+_(HOSTS|NUM)$"
)
# What operators, torchrun and Kubernetes set in a pod, and no template of a manifest.
IN_PODS = re.compile(
    r"(PET_|MASTER_(ADDR|PORT)$)\w*|RANK|LOCAL_RANK|NODE_RANK|WORLD_SIZE|JOB_COMPLETION_INDEX"
    r"|HOSTNAME|VC_TASK_INDEX|LWS_(LEADER_ADDRESS|WORKER_INDEX|GROUP_SIZE)"
)
# These come after Kubernetes has put in what it knows.
_OF_THE_CONTAINER = frozenset({"HOSTNAME", "LOCAL_RANK", "NODE_RANK"})
_RANK = re.compile(r"--node[-_]rank=")
_NAMES = frozenset({"-", "--", "_", "bash", "sh"})
_OPERATORS = frozenset({"&&", "||", "|", ">", ">>", "2>&1", "<", "&"})
_TWO = re.compile(r"--?[A-Za-z][\w-]*[ \t]+[^\s-]\S*")
_SEVERAL = re.compile(r"--[A-Za-z][\w-]*=[^\s-]\S*([ \t]+--[A-Za-z][\w-]*=[^\s-]\S*)+")
_QUOTED = re.compile(r"--[\w-]+=(?P<mark>[\"'])[^\"'{}\[\]]*(?P=mark)")
_READS_WORDS = re.compile(r"\$[{]?[@*#0-9]|\bshift\b|\bgetopts\b")


def unexpanded(manifest: Manifest) -> Iterator[Finding]:
    """Refuse `$NAME` in a command that no shell reads.

    Kubernetes, "Define a Command and Arguments for a Container": a container runs without a shell,
    and Kubernetes itself puts in `$(NAME)` alone; the program gets the letters as they are.
    """
    for container in _containers(manifest):
        known = {each.name for each in container.variables if _has_own_value(each)}
        words = container.words
        for path, word in words if _runs_alone(container) else ():
            # A script as one word is for somebody who reads scripts.
            if "$" not in word or any(char.isspace() for char in word):
                continue
            for match in _NAMED.finditer(word):
                name = match["name"] or match["braced"]
                # Where a template fills in other parts of the object, it may fill in this one.
                own = name in known and not is_placeholder(manifest.name or "")
                if own or IN_PODS.fullmatch(name):
                    found = f"{shown(word)}: no shell here puts in {name}, and it stays as it is"
                    by_shell = "start it by a shell: [bash, -c, ...]"
                    inner = name in _OF_THE_CONTAINER and name not in known
                    remedy = by_shell if inner else f"write $({name}), or {by_shell}"
                    yield Finding(Code.NOT_EXPANDED, path, found, remedy)
                    break


def unknown_names(manifest: Manifest) -> Iterator[Finding]:
    """Warn of `$(NAME)` in an option of a rank, of a variable that the container does not have.

    Kubernetes, "Define Dependent Environment Variables": a reference that cannot be resolved stays
    as it is, and the program gets the letters.
    """
    for container in _containers(manifest):
        told = not is_absent(container.body.get("envFrom")) or not container.has_launcher
        if told or not _runs_alone(container):
            continue
        known = {each.name for each in container.variables}
        for path, word in container.words:
            for match in _REFERENCE.finditer(word) if word.startswith("--") else ():
                name = match["name"]
                # Kubernetes alone numbers the pods of a Job, and by one name.
                number = _RANK.match(word) is not None and name.startswith("JOB_")
                elsewhere = FROM_OTHERS.match(name) and not number
                if name in known or IN_PODS.fullmatch(name) or elsewhere:
                    continue
                found = (
                    f"{shown(word)}: no variable {name} in this container, and it stays as it is"
                )
                remedy = f"add {name} to env, or write its value here"
                yield Finding(Code.NOT_EXPANDED, path, found, remedy, Level.WARNING)


def for_shells(manifest: Manifest) -> Iterator[Finding]:
    """Refuse operators and quotes of a shell, and two words in one, where no shell reads them.

    Kubernetes, "Define a Command and Arguments for a Container": each word goes to the program as
    it is written.
    """
    for container in _containers(manifest):
        before = ""
        for path, word in container.words if _runs_alone(container) else ():
            # The word behind an option may be its value, spaces and all.
            free = not before.startswith("-") or "=" in before
            if word in _OPERATORS:
                found = f"{shown(word)} is for a shell, and here it is an argument of the program"
                remedy = "start it by a shell: [bash, -c, ...]"
                yield Finding(Code.NOT_EXPANDED, path, found, remedy)
                break
            several = _TWO.fullmatch(word) or _SEVERAL.fullmatch(word)
            if free and " " in word and several and not _splits_words(container):
                found = f"{shown(word)} is one word, and no option has that name"
                yield Finding(Code.NOT_EXPANDED, path, found, "write each word for itself")
            elif word.endswith(("'", '"')) and _QUOTED.fullmatch(word):
                found = f"{shown(word)}: no shell takes the quotes away, and they are in the value"
                yield Finding(Code.NOT_EXPANDED, path, found, "remove them", Level.WARNING)
            before = word


def _splits_words(container: Container) -> bool:
    """Tell a program that reads an option and its value from one word.

    Envoy's TCLAP does (knative-extensions/net-kourier, config/300-gateway.yaml: --base-id 1).
    """
    first = next((word for _, word in container.words), "")
    return "envoy" in first or "envoy" in (text(container.body.get("image")) or "")


def _runs_alone(container: Container) -> bool:
    """Tell whether a program is started by its name, and no shell anywhere."""
    shells = (w for _, w in container.words if w.endswith("sh") and _SHELL.fullmatch(w))
    return bool(items(container.body.get("command"))) and next(shells, None) is None


def _has_own_value(variable: Variable) -> bool:
    """Tell whether a variable's value is not what a template puts in by the same name."""
    value = variable.value or ""
    return variable.name not in {
        match["name"] or match["braced"] for match in _NAMED.finditer(value)
    }


def dropped(manifest: Manifest) -> Iterator[Finding]:
    """Refuse words behind a shell's script, which are the script's own arguments.

    POSIX, sh, -c: the next word is the whole script; those after it are $0, $1 and so on.
    """
    for container in _containers(manifest):
        words = container.words
        if not words or _SHELL.fullmatch(words[0][1]) is None:
            continue
        at = next((n for n, (_, word) in enumerate(words) if _SCRIPT_FLAG.fullmatch(word)), None)
        if at is None or at + 1 >= len(words) or any(_is_script(w) for _, w in words[1:at]):
            continue
        # Two dashes end the options, and are no script.
        at += words[at + 1][1] == "--" and at + 2 < len(words)
        script, rest = words[at + 1][1], words[at + 2 :]
        if _READS_WORDS.search(script) or script.startswith(("$", "{{")):
            continue
        plain = not any(char.isspace() for char in script.strip())
        options = bool(rest) and rest[0][1].startswith("-") and rest[0][1] not in _NAMES
        # One word more is what the script calls itself.
        if len(rest) < (1 if plain or options else 2) or all(w in _NAMES for _, w in rest):
            continue
        if plain or options:
            found = (
                f"the shell runs {shown(script)} alone, and drops the {len(rest)} words after it"
            )
            remedy = "write the whole command as one word after -c, or start the program itself"
            yield Finding(Code.NOT_EXPANDED, words[at + 1][0], found, remedy)
        else:
            found = f"{len(rest)} words after the script, which reads none of them"
            remedy = 'write them into it, or read them: "$@"'
            yield Finding(Code.NOT_EXPANDED, rest[0][0], found, remedy, Level.WARNING)


def _is_script(word: str) -> bool:
    return not word.startswith("-")


def _containers(manifest: Manifest) -> Iterator[Container]:
    # KubeRay puts these words into a script of its own.
    for pod in manifest.pods if manifest.group != "ray.io" else ():
        yield from pod.containers
