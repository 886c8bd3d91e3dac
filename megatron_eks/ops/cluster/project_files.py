"""What a project without a checkout has beside its cluster file: a CDK app, a job and schemas."""

import json
import os
from pathlib import Path

from megatron_eks import RUN_APP
from megatron_eks.ops import files
from megatron_eks.project import IN_CHECKOUT, ROOT, TEMPLATE

_SCHEMAS, _OWN_SCHEMAS = ROOT / "megatron_eks" / "config" / "schema", ".schema"
_JOB = """\
# yaml-language-server: $schema=../.schema/job.json
# A tokenizer without a gate onto the shared file system: a first job, which needs no GPU.
schema_version: 1
kind: fetch
name: fetch-tokenizer
image: megatron
tokenizer: hf-internal-testing/llama-tokenizer
directory: /shared/tokenizer/llama
"""


def schema(cluster_file: Path) -> str:
    """Return where editors find what a cluster file is checked with, as its first line says it."""
    folder = cluster_file.resolve().parent
    schemas = os.path.relpath(_SCHEMAS, folder) if _is_in_checkout(folder) else _OWN_SCHEMAS
    return f"{schemas}/cluster.json"


def write(folder: Path) -> list[Path]:
    """Write what a folder lacks, and return what is worth a look; what is there stays as it is.

    In a checkout, nothing: it has all of it.
    """
    if _is_in_checkout(folder):
        return []
    settings = json.loads((TEMPLATE / "cdk.json").read_text())
    # The feature flags are those of the installed package.
    context = {key: each for key, each in settings["context"].items() if not key.startswith("@")}
    settings |= {"app": f"meks {RUN_APP}", "context": context}
    texts = {
        "app.py": (TEMPLATE / "app.py").read_text(),
        "cdk.json": json.dumps(settings, indent=2) + "\n",
        "jobs/fetch-tokenizer.yaml": _JOB,
    }
    texts |= {f"{_OWN_SCHEMAS}/{each.name}": each.read_text() for each in _SCHEMAS.glob("*.json")}
    missing = [name for name in texts if not (folder / name).exists()]
    for name in missing:
        files.replace(folder / name, texts[name], "and run it again with --force")
    return [folder / name for name in missing if not name.startswith(_OWN_SCHEMAS)]


def _is_in_checkout(folder: Path) -> bool:
    return IN_CHECKOUT and folder.resolve().is_relative_to(ROOT)
