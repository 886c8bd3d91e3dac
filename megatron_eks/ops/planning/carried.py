"""What the files in use allow on purpose: configuration, and what was rendered of it."""

from megatron_eks.config.allowances import ANNOTATION
from megatron_eks.config.errors import Finding, Level
from megatron_eks.project import MANIFESTS, TEMPLATES, Project

# A file is read as a template or manifest only if it holds one of these.
_MARKS = (ANNOTATION, '"meks"', "meks:")


def allowed(project: Project) -> list[Finding]:
    """Return the allowed findings, each with its reason; files are as the last synthesis left them.

    The rendered ones are found where `make synth` writes them, beside the cluster file.
    """
    # With all guards, which commands that only could print a plan need not load.
    from megatron_eks.ops.planning.check import Files  # noqa: PLC0415 -- as above

    checked = Files()
    templates, manifests = (project.file.with_name(each) for each in (TEMPLATES, MANIFESTS))
    for path in (
        *sorted(templates.glob(f"{project.cluster.name}-*.template.json")),
        *sorted(manifests.glob("*/*.k8s.yaml")),
    ):
        try:
            marked = any(mark in path.read_text(encoding="utf-8") for mark in _MARKS)
        except (OSError, UnicodeDecodeError):
            continue
        if marked:
            checked.add(path)
    rendered = [each for each in checked.findings() if each.level is Level.ALLOWED]
    return [*project.allowed, *sorted(rendered, key=lambda each: (each.file, each.line))]
