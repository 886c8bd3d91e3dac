"""Rules over jobs that tokenize: which file they read, and whether what they write stays."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.output_places import directory_in, place_of
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import options_of, split_words
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import Container, Manifest

# Programs of Megatron-LM and NeMo that tokenize, or join what was tokenized.
PREPARES = re.compile(r"\b(preprocess_(mm)?data\w*|merge_datasets)\.py\b")
_OF_MEGATRON = re.compile(r"(^|[\s/;&|(])preprocess_data\.py\b")
_CARRIED = re.compile(r"\bs3 (sync|cp|mv)\b|\b(rclone|s5cmd|rsync|gsutil|scp|cp|mv)\b|boto3")
# Options that a variable or a template adds.
_MORE = re.compile(r"\$[{]?[@*]|[{]{2}|\$[{]?\w*(ARG|OPT|FLAG|PARAM|EXTRA)", re.IGNORECASE)
_ANY_NAMES = re.compile(r"[*?\[]")


def prepared(manifest: Manifest) -> Iterator[Finding]:
    """Warn of tokenized files in a job's own pod, which are gone when the next job wants them.

    Kubernetes, "Volumes": files of a container are lost with it, and an emptyDir with its pod.
    Megatron-LM, tools/preprocess_data.py: it writes PREFIX_text_document.bin and .idx.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            # What a first container prepares, others of the pod may read.
            alone = not container.is_init and PREPARES.search(container.line)
            # What a first container copies comes in, and what another one copies goes out.
            others = [each for each in pod.containers if not _comes_first(each)]
            if not alone or any(_CARRIED.search(each.line) for each in others):
                continue
            for path, flag, given in _options(container):
                value = directory_in(container, given)
                if _plain(flag) != "--output-prefix" or not value.startswith("/"):
                    continue
                place = place_of(value, container, pod) if not is_placeholder(value) else None
                if place is not None and (not place.mount or place.goes_with_pod):
                    where = f"on {shown(place.name)}" if place.mount else "where nothing is mounted"
                    found = f"{flag} {shown(value)}, {where}: the tokenized files go with the pod"
                    remedy = "write below the mount of the claim that training reads"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy, Level.WARNING)


def patterns(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a pattern as the one file that Megatron-LM's preprocess_data.py opens.

    Megatron-LM, tools/preprocess_data.py, main: with one partition --input is opened as it is;
    glob.glob looks for files with --partitions above 1 alone. Kubernetes starts no shell.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not _OF_MEGATRON.search(container.line):
                continue
            options = list(_options(container))
            if any(_plain(flag) == "--partitions" for _, flag, _ in options):
                continue
            for path, flag, value in options:
                if flag == "--input" and _ANY_NAMES.search(value) and not is_placeholder(value):
                    found = f"--input {shown(value)}: the program opens one file, of this very name"
                    remedy = "join the files into one, or add --partitions 2 or more, which "
                    remedy += "divides --workers"
                    yield Finding(Code.NOT_EXPANDED, path, found, remedy, Level.WARNING)


def lacking(manifest: Manifest) -> Iterator[Finding]:
    """Refuse Megatron-LM's preprocess_data.py without --workers, and warn without --append-eod.

    Megatron-LM, tools/preprocess_data.py, get_args: --workers is required; without --append-eod
    nothing tells a GPT where one document ends. Sentences for BERT and T5 need none.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not _OF_MEGATRON.search(container.line):
                continue
            options = {_plain(flag): (path, value) for path, flag, value in _options(container)}
            whole = {"--input", "--output-prefix", "--tokenizer-type"} <= options.keys()
            if not whole or _MORE.search(container.line):
                continue
            path, kind = options["--tokenizer-type"]
            if "--workers" not in options:
                found = "preprocess_data.py without --workers: it stops at once"
                yield Finding(Code.TRAINING_FLAG, path, found, "add --workers")
            sentences = "--split-sentences" in options or kind.startswith(("Bert", "$"))
            if "--append-eod" not in options and not sentences:
                found = "preprocess_data.py without --append-eod: no token ends a document, and a "
                found += "GPT learns them as one"
                yield Finding(Code.TRAINING_FLAG, path, found, "add --append-eod", Level.WARNING)


def _comes_first(container: Container) -> bool:
    return container.is_init and container.body.get("restartPolicy") != "Always"


def _options(container: Container) -> Iterator[tuple[Path, str, str]]:
    words = [(path, word) for path, line in told(container) for word in split_words(line)]
    yield from options_of(words)


def _plain(flag: str) -> str:
    return flag.replace("_", "-")
