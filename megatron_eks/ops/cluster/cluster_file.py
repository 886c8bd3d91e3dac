"""What `meks init` writes: a short cluster file with its reasons, and what stands beside it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from megatron_eks import RUN_APP
from megatron_eks.ops.output import replace_file
from megatron_eks.project import IN_CHECKOUT, ROOT, TEMPLATE

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Answers:
    """What is known of the wanted cluster."""

    name: str
    region: str
    zones: tuple[str, ...]
    kubernetes_version: str
    role: str
    cidrs: tuple[str, ...]
    pool: str
    instance_type: str
    pool_zone: str
    offers: tuple[str, ...]
    """All zones of the region that have the type."""
    max_nodes: int
    capacity_gib: int


def render(answers: Answers, schema: str) -> str:
    """Write the file; `schema` is what editors check it with."""
    shown = {
        name: ", ".join(value) if isinstance(value, tuple) else value
        for name, value in asdict(answers).items()
    }
    return (_HERE / "new_cluster.yaml").read_text().format(schema=schema, **shown)


_SCHEMAS, _OWN_SCHEMAS = ROOT / "megatron_eks" / "config" / "schema", ".schema"


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
        "jobs/fetch-tokenizer.yaml": (_HERE / "first_job.yaml").read_text(),
    }
    texts |= {f"{_OWN_SCHEMAS}/{each.name}": each.read_text() for each in _SCHEMAS.glob("*.json")}
    missing = [name for name in texts if not (folder / name).exists()]
    for name in missing:
        (folder / name).parent.mkdir(exist_ok=True)
        replace_file(folder / name, texts[name], "and run it again with --force")
    return [folder / name for name in missing if not name.startswith(_OWN_SCHEMAS)]


def _is_in_checkout(folder: Path) -> bool:
    return IN_CHECKOUT and folder.resolve().is_relative_to(ROOT)
