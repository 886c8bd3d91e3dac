"""Rules over scripts for a shell: lines that do not go on, and ends that hide what happened."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.values import mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_SUBSTITUTED = re.compile(r"(?<![$\\])\$\((?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+|RANK)\)")
# What operators and Kubernetes add to a container's own variables.
_BY_OPERATORS = re.compile(
    r"(PET_|MASTER_|LWS_|VC_|JOB_|TPU_|KUBERNETES_)\w+|\w+_(HOST|PORT)|RANK|WORLD_SIZE"
)
_BROKEN = re.compile(r"\\[ \t]+(?=\n|--?[A-Za-z])")
_LAUNCHES = re.compile(
    r"(^|[\s/(])(torchrun|accelerate\s+launch|deepspeed|mpirun)\s|torch\.distributed\.run\s"
)
_OPTION = re.compile(r"\s*--[A-Za-z]")
# A launcher with options alone, and what it was to launch.
_PROGRAMLESS = re.compile(r"(\S*/)?torchrun((\s+--?[\w-]+(=\S+)?)(\s+[\w:.$(){}]+)?)*$")
_PROGRAM = re.compile(r"\s*\S+\.py\b")
_ENDLESS = re.compile(r"\s*(sleep\s+(infinity|inf)\b|tail\s+-[fF]\s|while\s+(true|:)\b)")
_PLAIN = re.compile(r"\s*(echo|printf|date|sleep|ls|sync|touch|nvidia-smi|df|du|cat|rm|chmod)\b")
_KEEPS = re.compile(r"\bset\s+-\w*e|errexit|\$\?|PIPESTATUS|\bwait\b|\btrap\b|\bexit\s+\$|\bif\b")
_FAILS_ON = re.compile(r"\|\|\s*(true|:|exit\s+0|echo\b[^;&|]*)\s*$")


def scripts(manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Return the scripts that shells run: after -c, and in ConfigMaps."""
    for pod in manifest.pods:
        for container in pod.containers:
            yield from scripts_of(container)
    if manifest.kind == "ConfigMap":
        for key, value in (mapping(manifest.body.get("data")) or {}).items():
            written = text(value) or ""
            if key.endswith(".sh") or re.match(r"#!\S*/(env )?(ba|da)?sh", written):
                yield (manifest.title, "data", key), written


def scripts_of(container: Container) -> Iterator[tuple[Path, str]]:
    """Return the scripts that a container's shell is given, each with its place."""
    words = container.words
    if words and _SHELL.fullmatch(words[0][1]):
        yield from ((path, word) for path, word in words[1:] if any(c.isspace() for c in word))


def continued(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a command over several lines that ends before its options.

    POSIX, "Shell Command Language", 2.2.1: a backslash joins two lines if nothing is behind it; in
    folded text (YAML, `>`) there are no lines left to join, and it makes a space part of a word.
    """
    for path, script in scripts(manifest):
        if "\r\n" in script:
            found = "lines that end in CR LF: the shell takes the CR for a part of each last word"
            yield Finding(Code.SCRIPT, path, found, "save it with LF alone")
            continue
        broken = _BROKEN.search(script)
        if broken is not None and "<<" not in script:
            behind = script[broken.end() :].split(maxsplit=1)[:1]
            found = "a space behind a backslash, which joins no lines then"
            if behind and not broken.group().endswith("\n") and behind[0].startswith("-"):
                found += f": {shown(behind[0])} begins with a space, or is a command of its own"
            remedy = "remove the space, or the backslash in folded text"
            yield Finding(Code.SCRIPT, path, found, remedy)
            continue
        lost = _lost_option(script)
        if lost is not None:
            found = f"{shown(lost)} begins a command: the line before ends without a backslash"
            yield Finding(
                Code.SCRIPT, path, found, "end that line with a backslash, and no comment"
            )


def substituted(manifest: Manifest) -> Iterator[Finding]:
    """Refuse `$(NAME)` of Kubernetes where a shell takes it for a command.

    Kubernetes, "Define Dependent Environment Variables": it is put in for variables of env, in
    command, args and env alone; POSIX, "Shell Command Language", 2.6.3: the output of a command.
    """
    known: set[str] = set()
    for pod in manifest.pods:
        for container in pod.containers:
            known |= {each.name for each in container.variables}
    anything = any(each.body.get("envFrom") for pod in manifest.pods for each in pod.containers)
    for path, script in scripts(manifest) if not anything else ():
        for match in _SUBSTITUTED.finditer(_COMMENT.sub("", script)):
            name = match["name"]
            by_kubernetes = name in known or _BY_OPERATORS.fullmatch(name) is not None
            if by_kubernetes and manifest.kind != "ConfigMap":
                continue
            # A function of the script may be called so.
            if re.search(rf"\b{name}\s*\(\)", script) is None:
                found = f"{shown(match[0])} is the output of a command {name} here, and there is "
                found += "none: Kubernetes puts nothing in"
                remedy = f"write ${{{name}}}"
                yield Finding(Code.NOT_EXPANDED, path, found, remedy)
                break


def _lost_option(script: str) -> str | None:
    """Return the first line that begins with an option, outside of quotes and parentheses."""
    if "<<" in script or "{{" in script:
        return None
    before = ""
    for command in commands_of(script):
        without = _PROGRAMLESS.match(before) is not None and _PROGRAM.match(command) is not None
        if _OPTION.match(command) or without:
            return command.strip().split(maxsplit=1)[0]
        before = command.strip()
    return None


def commands_of(script: str) -> list[str]:
    """Split a script at the ends of lines and at semicolons that end commands."""
    found, current, quote, depth, index = [], "", "", 0, 0
    while index < len(script):
        char = script[index]
        if char == "\\" and quote != "'":
            joined = script[index + 1 : index + 2] == "\n"
            current += "" if joined else script[index : index + 2]
            index += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and (not current or current[-1].isspace()):
            index = script.find("\n", index)
            if index < 0:
                break
            continue
        elif char in "({":
            depth += 1
        elif char in ")}":
            depth = max(depth - 1, 0)
        elif char in "\n;" and not depth:
            found.append(current)
            current = ""
            index += 1
            continue
        current += char
        index += 1
    return [each for each in [*found, current] if each.strip()]


def ends(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a script whose end says nothing of the run: success after failure, or no end at all.

    POSIX, "Shell Command Language", 2.8.2 and 2.9.2: the exit status of a list, and of a pipeline
    without pipefail, is that of the last command; Kubernetes, "Jobs": 0 is success.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, script in scripts_of(container):
                # Functions, loops and conditions may well keep what a command said.
                commands = commands_of(script)
                runs = [n for n, each in enumerate(commands) if _LAUNCHES.search(f"{each} ")]
                if runs and "<<" not in script and not container.is_init:
                    yield from _ending(path, script, commands, runs[-1], container)


def _ending(
    path: Path, script: str, commands: list[str], last: int, container: Container
) -> Iterator[Finding]:
    run, after = commands[last].strip(), commands[last + 1 :]
    endless = next((each.strip() for each in after if _ENDLESS.match(each)), None)
    behind = re.split(r"&&|\|\|", run)[-1]
    if endless is None and _ENDLESS.match(behind) and not _LAUNCHES.search(f"{behind} "):
        endless = behind.strip()
    if endless is not None:
        found = f"{shown(endless)} follows the run: its nodes are held for ever"
        yield Finding(Code.NEVER_ENDS, path, found, "let the script end with the run")
    elif run.endswith("&") and not run.endswith("&&") and "wait" not in script and not after:
        found = "the run is in the background, and the script ends: the container stops with it"
        yield Finding(Code.EXIT_LOST, path, found, "remove the &, or add wait")
    elif (hidden := _FAILS_ON.search(run)) is not None:
        found = f"{shown(hidden[0])}: a run that fails ends as a success"
        yield Finding(Code.EXIT_LOST, path, found, "remove it", Level.WARNING)
    elif _is_piped(run) and "pipefail" not in container.line and "PIPESTATUS" not in script:
        found = "a pipe after the run, whose own end counts: a run that fails ends as a success"
        remedy = "begin with: set -o pipefail"
        yield Finding(Code.EXIT_LOST, path, found, remedy, Level.WARNING)
    elif after and all(_PLAIN.match(each) for each in after) and not _KEEPS.search(script):
        first = after[0].strip().split(maxsplit=1)[0]
        found = (
            f"{shown(first)} after the run, whose end counts: a run that fails ends as a success"
        )
        remedy = "begin with: set -e"
        yield Finding(Code.EXIT_LOST, path, found, remedy, Level.WARNING)


def _is_piped(run: str) -> bool:
    unquoted = re.sub(r"\$\([^()]*\)|`[^`]*`|\"[^\"]*\"|'[^']*'|\|\|", "", run)
    match = _LAUNCHES.search(f"{unquoted} ")
    return match is not None and "|" in unquoted[match.start() :]
