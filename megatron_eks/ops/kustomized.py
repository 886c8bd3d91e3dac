"""What only the disk tells of Kustomizations: which they are, and which of their paths lead on."""

from collections.abc import Sequence
from pathlib import Path

from megatron_eks.config.load import Document, Json
from megatron_eks.rules.platform import kustomizations
from megatron_eks.rules.platform.kustomize_paths import local_paths
from megatron_eks.rules.workloads import Manifest

_KUSTOMIZATION: dict[str, Json] = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
}
# What stands here may be a folder, with a Kustomization of its own.
_BUILT = frozenset({"bases", "components", "generators", "resources", "transformers"})


def named_kind(document: Document, path: Path) -> Document:
    """Give a Kustomization, which need not say so, its kind by the name of its file."""
    if path.name.lower() in kustomizations.NAMES and isinstance(document.value, dict):
        document.value = {**_KUSTOMIZATION, **document.value}
    return document


def absent_files(documents: Sequence[Document]) -> dict[str, frozenset[str]]:
    """Return the paths in each Kustomization that lead to nothing, by its file."""
    found = {}
    for document in documents:
        body = document.value if isinstance(document.value, dict) else {}
        if kustomizations.is_one(Manifest(body, document.file)):
            folder = Path(document.file).parent
            named = [(name, path[0] in _BUILT) for path, name in local_paths(body)]
            gone = [name for name, built in named if not _leads_on(folder / name, built=built)]
            found[document.file] = frozenset(gone)
    return found


def _leads_on(path: Path, *, built: bool) -> bool:
    try:
        if not path.is_dir():
            return path.exists()
        names = {each.name.lower() for each in path.iterdir()} if built else kustomizations.NAMES
    except OSError:
        return True  # Nobody can tell.
    return not names.isdisjoint(kustomizations.NAMES)
