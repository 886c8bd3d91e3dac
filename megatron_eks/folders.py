"""One cluster, one folder: what is written beside a cluster file is of that cluster alone."""

import contextlib
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding
from megatron_eks.config.load import read_mapping
from megatron_eks.project import MANIFESTS, TEMPLATES, Project, shown, synth_command


def refuse_folder_of_another(project: Project, output: Path | None = None) -> None:
    """Raise ConfigError where output would take the place of another cluster's.

    `output` is the folder that somebody asked for; without one it stands beside the cluster file.
    """
    file, name = project.file, project.cluster.name
    folder, remedy = file.parent, f"put {shown(file)} and its jobs/ into a folder of its own"
    if output is not None and output.resolve().parent != folder.resolve():
        if output.name not in {TEMPLATES, MANIFESTS}:
            return
        folder = output.resolve().parent
        beside = shown(file.with_name(output.name))
        remedy = f"add `--output {beside}`, or run: {synth_command(file)}"
    for other, owner in clusters_in(folder).items():
        if owner != name:
            found = f"{shown(folder)} is the folder of cluster {owner!r}, by {shown(other)}"
            finding = Finding(Code.FOLDER_OF_ANOTHER, ("name",), found, remedy)
            raise ConfigError([finding.at(shown(file), 1)])


def clusters_in(folder: Path) -> dict[Path, str]:
    """Return the clusters that files in a folder describe, by file."""
    found = {}
    for path in filter(Path.is_file, sorted(folder.glob("[!.]*.y*ml"))):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
            value = read_mapping(text, str(path)).value if "gpu_pools" in text else None
            if isinstance(value, dict) and "gpu_pools" in value:
                found[path] = str(value.get("name"))
    return found
