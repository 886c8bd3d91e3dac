"""From a cluster file to a complete plan: the composition that every entry point shares."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from shlex import quote

from megatron_eks import DEFAULT_CLUSTER
from megatron_eks.build_context import declared_arguments
from megatron_eks.config.allowances import apply, on_lines
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, Level, has_errors
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import Document, read_mapping
from megatron_eks.config.outputs import Home, Outputs, preview_warning, read_outputs
from megatron_eks.config.parse import odd_paths, parse_cluster, parse_job
from megatron_eks.own_images import RENDERED, Images
from megatron_eks.plan.cluster.access import DOCUMENTATION_ACCOUNT
from megatron_eks.plan.cluster.cluster import ClusterPlan, check_cluster, plan_cluster
from megatron_eks.plan.cluster.images import REPOSITORIES, check_arguments
from megatron_eks.plan.cost import still_billed
from megatron_eks.plan.jobs.file_system import Claims, check_cluster_of, check_together
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.table import check_among, plan_job
from megatron_eks.plan.jobs.validation import plan_validation
from megatron_eks.shipping import Shipped

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, or where this package is installed."""
TEMPLATE = ROOT / "megatron_eks" / "template"
"""Files of a project of its own, and the versions of the CDK's command line."""
IN_CHECKOUT = (ROOT / "megatron_eks" / "stacks").is_symlink()
"""Whether there are a Makefile, examples and docs; a wheel has files where a checkout has links."""
_MAKE = "make" if Path.cwd() == ROOT else f"make -C {quote(str(ROOT))}"
GET_PROGRAMS = (
    f"{_MAKE} programs" if IN_CHECKOUT else "uv tool install --python 3.12 'WHEEL[megatron]'"
)
"""What installs PyTorch and Megatron on this machine."""
GET_LOCAL = f"{_MAKE} setup-dev" if IN_CHECKOUT else "uv tool install 'WHEEL[local]'"
"""What installs the parts of a local AWS and its control plane."""

TEMPLATES, MANIFESTS, OUTPUTS = RENDERED
"""What is written beside a cluster file, for that cluster alone."""

MISSING_CLUSTER = "name a cluster file with --cluster or CLUSTER_CONFIG, or write one: meks init"


@dataclass(frozen=True)
class Project:
    """A cluster, its jobs, and what is known of the deployment."""

    file: Path
    cluster: ClusterPlan
    jobs: tuple[JobPlan, ...]
    validation: tuple[JobPlan, ...]
    """What each pool is tested with."""
    outputs: Outputs
    warnings: tuple[Finding, ...]
    allowed: tuple[Finding, ...]
    """Warnings that a comment in the files allows, with its reason."""
    preview: tuple[Finding, ...]
    """What rendered manifests lack until the cluster is deployed."""
    errors: tuple[Finding, ...] = ()
    """What is wrong with the files, and stops whatever makes something."""

    def refuse_errors(self) -> None:
        """Raise ConfigError where the files have errors, before anything is made by them."""
        if self.errors:
            raise ConfigError(self.errors)


@dataclass(frozen=True)
class Files:
    """The parsed files of a project, before anything is planned."""

    config: ClusterConfig | None
    jobs: tuple[tuple[Document, AnyJob], ...]
    findings: tuple[Finding, ...]
    shipped: Mapping[str, Shipped]
    """What travels with a job, by its name."""
    without_bucket: tuple[Finding, ...]
    """What is to be said of programs where the cluster's bucket is not known."""
    images: Images | None
    """None without a cluster."""


def load_project(
    cluster_file: Path, today: date, *, makes: bool = True, code: bool = False
) -> Project:
    """Read a cluster file, its jobs and outputs; raise ConfigError with every finding.

    What makes nothing, because it looks at or ends what is there, goes on with what can be planned
    in spite of errors: not with a job that has some. They stand in `errors`. Folders of programs
    are looked at with `code` alone, or when a job's files are asked for.
    """
    files = check_files(cluster_file, job_files(cluster_file), today, code=code)
    errors = tuple(each for each in files.findings if each.level is Level.ERROR)
    outputs_file = cluster_file.with_name(OUTPUTS)
    outputs = read_document(outputs_file) if outputs_file.exists() else None
    if makes or not errors or files.config is None:
        return plan_files(files, cluster_file, outputs)
    wrong = {each.file for each in errors}
    jobs = tuple(each for each in files.jobs if each[0].file not in wrong)
    others = tuple(each for each in files.findings if each.level is not Level.ERROR)
    try:
        planned = plan_files(replace(files, jobs=jobs, findings=others), cluster_file, outputs)
    except (LookupError, ValueError):
        # An instance type that the catalogue lacks, addresses that are none: the errors say it.
        raise ConfigError(files.findings) from None
    return replace(planned, errors=errors)


def plan_files(files: Files, cluster_file: Path, document: Document | None = None) -> Project:
    """Plan what was read, with outputs in a document; raise ConfigError with every finding."""
    if files.config is None or files.images is None or has_errors(files.findings):
        raise ConfigError(files.findings)
    wanted = [job for _, job in files.jobs]
    cluster = plan_cluster(files.config, files.images.tags, wanted)
    outputs_file = cluster_file.with_name(OUTPUTS)
    repositories: dict[str, str] = {
        image.name: f"{image.repository}:{image.tag}" for image in cluster.images
    }
    outputs, findings = read_outputs(
        document,
        cluster.name,
        repositories,
        suffixes=[each.output_suffix for each in cluster.storage.file_systems],
        existing=files.config.storage.lustre.existing,
        home=Home(cluster.region, _accounts(files.config)),
    )
    if has_errors(findings):
        raise ConfigError(findings)
    jobs = tuple(
        plan_job(job, cluster, outputs.images, files.shipped[job.name].late(outputs.bucket))
        for job in wanted
    )
    used = [job.image for job in jobs]
    place = shown(outputs_file)
    cluster_option = "" if place == OUTPUTS else f" --cluster {shown(cluster_file)}"
    deploy = f"meks deploy{cluster_option}"
    preview = preview_warning(outputs, used, place, deploy)
    warnings = [each for each in files.findings if each.level is not Level.ALLOWED]
    warnings += [] if outputs.bucket else files.without_bucket
    warnings += [each.at(place, 1) for each in still_billed(cluster, outputs.watch)]
    return Project(
        file=cluster_file,
        cluster=cluster,
        jobs=jobs,
        validation=plan_validation(cluster, outputs.images),
        outputs=outputs,
        warnings=tuple(warnings),
        allowed=tuple(each for each in files.findings if each.level is Level.ALLOWED),
        preview=tuple(preview),
    )


def _accounts(config: ClusterConfig) -> set[str]:
    """Return the accounts of the administrators' roles; that of AWS's examples is nobody's."""
    return {arn.split(":")[4] for arn in config.access.admin_role_arns} - {DOCUMENTATION_ACCOUNT}


def check_files(
    cluster_file: Path,
    jobs: Iterable[Path],
    today: date,
    edit: Callable[[Path, Document], Document] = lambda _, document: document,
    check: Callable[[AnyJob, ClusterConfig], Iterable[Finding]] = lambda *_: (),
    *,
    code: bool = False,
) -> Files:
    """Parse and check a cluster file and job files; collect every finding of all of them.

    `edit` gets each job file as it was read, and returns what is checked in its place. `check`
    tells of a job without errors what no file can. With `code`, folders of programs are read.
    """
    document = read_document(cluster_file, MISSING_CLUSTER)
    read = [edit(path, read_document(path)) for path in dict.fromkeys(jobs)]
    return check_documents(document, read, today, check, code=code)


def check_documents(
    document: Document,
    jobs: Iterable[Document],
    today: date,
    check: Callable[[AnyJob, ClusterConfig], Iterable[Finding]] = lambda *_: (),
    *,
    code: bool = False,
) -> Files:
    """Parse and check a cluster and jobs, as above, wherever they come from."""
    read_files = [document]
    config, findings = parse_cluster(document)
    images = None
    if config is not None:
        findings += document.locate(check_cluster(config, today))
        arguments = {image: declared_arguments(ROOT, image) for image in REPOSITORIES}
        findings += document.locate(check_arguments(config, arguments))
        images = Images(config, Path(document.file).parent, ROOT)
        findings += document.locate(images.findings)
    parsed: list[tuple[Document, AnyJob]] = []
    claims = Claims()
    for job_document in jobs:
        read_files.append(job_document)
        job, job_findings = parse_job(job_document)
        findings += job_findings
        if job is not None:
            findings += job_document.locate(claims.check(job, job_document.file))
            parsed.append((job_document, job))
    shipped = {job.name: Shipped(job, Path(each.file).parent, ROOT) for each, job in parsed}
    without_bucket: list[Finding] = []
    for job_document, job in parsed:
        found = [*check_among(job, config, [other for _, other in parsed], today)]
        if code:
            found += shipped[job.name].findings
            large = shipped[job.name].needs_bucket
            without_bucket += job_document.locate([large] if large else [])
        if config is not None and not has_errors(found):
            found += check(job, config)
        findings += job_document.locate(found)
    if config is not None:
        findings += document.locate(check_cluster_of([job for _, job in parsed], config))
    documents = {each.file: each for each, _ in parsed}
    for file, finding in check_together([(job, each.file) for each, job in parsed], config):
        findings += documents[file].locate([finding])
    for each in (*documents.values(), *([document] if config is not None else [])):
        # What another check has said of the same place, it has said better.
        said = {finding.path for finding in findings if finding.file == each.file}
        findings += each.locate(odd for odd in odd_paths(each.value) if odd.path not in said)
    allowances = [each for read in read_files for each in read.allowances]
    placed = [((finding.file, finding.line), finding) for finding in findings]
    # Only warnings: what is an error here, AWS, Kubernetes or Megatron refuses as well.
    judged = apply(placed, allowances, (Level.WARNING,))
    ordered = sorted(judged, key=lambda each: ([*Level].index(each.level), each.file, each.line))
    return Files(config, tuple(parsed), tuple(ordered), shipped, tuple(without_bucket), images)


def synth_command(cluster_file: Path | str = DEFAULT_CLUSTER) -> str:
    """Return what writes templates and manifests of a cluster file, as it is typed here."""
    file = shown(Path(cluster_file))
    made = IN_CHECKOUT and Path.cwd() == ROOT
    command, option = ("make synth", "CLUSTER_CONFIG=") if made else ("meks synth", "--cluster ")
    return command if file == DEFAULT_CLUSTER else f"{command} {option}{quote(file)}"


def job_files(cluster_file: Path) -> list[Path]:
    """List the job files that belong to a cluster file: those in `jobs/` beside it."""
    folder = cluster_file.parent / "jobs"
    if folder.exists() and not folder.is_dir():
        return [folder]  # reading it says what is wrong
    # Hidden names are editors' locks and copies.
    return sorted(
        path
        for path in folder.glob("*.y*ml")
        if path.suffix in {".yaml", ".yml"} and not path.name.startswith(".")
    )


def read_document(path: Path, missing: str = "check the path") -> Document:
    """Read a configuration file; what is wrong with it becomes its findings.

    `missing` says what to do where there is no such file.
    """
    file = shown(path)
    try:
        text = _text(path)
        document = read_mapping(text, file)
        document.allowances += on_lines(text, file)
    except FileNotFoundError:
        found, remedy = "no such file", missing
    except UnicodeDecodeError:
        found, remedy = "not a UTF-8 text", "save it as UTF-8"
    except IsADirectoryError:
        found, remedy = "a folder", "name the files in it"
    except OSError as error:
        found, remedy = f"cannot be read: {error.strerror}", "check the path and its permissions"
    else:
        return document
    return Document(file, findings=[Finding(Code.FILE_UNREADABLE, (), found, remedy).at(file, 1)])


def _text(path: Path) -> str:
    # Reading a pipe waits for a writer, and a device may have no end.
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device")
    return path.read_text(encoding="utf-8")


def shown(path: Path) -> str:
    """Write a path as the user would: relative to where they stand, where that is shorter."""
    inside = os.path.relpath(path)
    return str(path) if inside.startswith("..") else inside
