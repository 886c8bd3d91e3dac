"""Rule over models that the Hugging Face Hub gives to those alone who have agreed to terms."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import items, mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest

# Gemma is under the Apache licence from 4 on, as is what explains it (Gemma Scope): not gated.
_GATED = re.compile(
    r"(--[\w-]+=)?[\"']?"
    r"(?P<name>(meta-llama/|google/gemma-(?![4-9]-|scope-))[\w.-]+)[\"']?"
)
# A token, a cache that is filled already, or no Hub at all.
_KNOWN = re.compile(r"HF_\w+|HUGGING_?FACE_\w*|TRANSFORMERS_(CACHE|OFFLINE)|XDG_CACHE_HOME")
_LOGS_IN = re.compile(r"\bHF_\w+=|auth login|huggingface-cli (login|download)|HUGGING_?FACE\w*=")
_CACHE = re.compile(r"/\.cache(/|$)|huggingface")


def gated(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a gated model or tokenizer by its name, and no token in the container.

    Hugging Face, "Gated models" and "Environment variables", HF_TOKEN: the Hub answers 401 to who
    is not logged in, and every rank ends at its start.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            if container.is_init or _may_have(container):
                continue
            for path, line in told(container):
                match = next(filter(None, map(_GATED.fullmatch, split_words(line))), None)
                if match is not None:
                    found = f"{shown(match['name'])} is gated, and nothing here has a token for it"
                    remedy = "set HF_TOKEN from a Secret, or name a directory that holds it"
                    code = Code.VARIABLE_MISSING
                    yield Finding(code, path, found, remedy, Level.WARNING)
                    break


def _may_have(container: Container) -> bool:
    mounts = [mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []]
    return (
        bool(container.body.get("envFrom"))
        or any(_KNOWN.fullmatch(each.name) for each in container.variables)
        or _LOGS_IN.search(container.line) is not None
        or any(_CACHE.search(text(each.get("mountPath")) or "") for each in mounts)
    )
