"""`meks data`: files to the cluster's bucket, from there to /shared, and data sets verified."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops import programs
from megatron_eks.ops.console import Console
from megatron_eks.ops.data import shared_files
from megatron_eks.ops.failure import CHECK_FAILED, DONE, NOT_FOUND, USAGE, Failure
from megatron_eks.ops.kube.teams import checked
from megatron_eks.ops.output import count, formatted, size
from megatron_eks.ops.programs import Place
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.data_access import PUSHED_DATA, S3
from megatron_eks.project import OUTPUTS, Project

SCHEMA_VERSION = 1


def destination(words: Sequence[str], project: Project) -> tuple[list[str], str]:
    """Tell the paths from the S3 URI at their end; without one it is the cluster's bucket."""
    bucket, *paths, last = project.outputs.bucket, *words
    uri = last if last.startswith(S3) else None
    paths = list(words) if uri is None else paths
    if not paths or any(path.startswith(S3) for path in paths):
        found = "files of this machine come first, then one S3 URI"
        raise _refused(found, "meks data push --help")
    if missing := [path for path in paths if not Path(path).exists()]:
        raise _refused(f"no such file or folder: {', '.join(missing)}", "correct them", NOT_FOUND)
    if uri is None and bucket is None:
        text, remedy = f"no BucketName in {OUTPUTS}", "meks outputs; or name s3://BUCKET/PREFIX"
        raise Failure(Code.NO_BUCKET, text, remedy, exit_code=NOT_FOUND)
    if uri is not None:
        return paths, uri.rstrip("/")
    plan = project.cluster
    checked(project, plan.platform.team, one=True)
    # Where the pods that are to read it look.
    own = [each.prefix for each in plan.teams if each.name == plan.platform.team]
    return paths, "/".join([f"{S3}{bucket}", *own, PUSHED_DATA]).rstrip("/")


def claim_of(path: str, plan: ClusterPlan) -> str | None:
    """Name the claim of the file system that a path is on; None for a path of this machine."""
    # A pod has no links of this machine's: what `..` means is what it says.
    inside = PurePosixPath(normpath(path)).is_relative_to(plan.platform.mount_path)
    return plan.platform.claim if inside else None


def shared_claim(path: str, plan: ClusterPlan, remedy: str) -> str:
    """Name the claim of a path on /shared. Raises Failure for anything else."""
    claim = claim_of(path, plan)
    if claim is None:
        raise _refused(f"{path} is not below {plan.platform.mount_path}", remedy)
    return claim


def push(
    paths: Sequence[str],
    uri: str,
    plan: ClusterPlan,
    place: Place,
    console: Console,
    *,
    output: str,
) -> int:
    """Send files to S3; what is left out makes it end with 4."""
    ended = programs.run(place, "upload", [*paths, uri], console)
    left_out = ended.rows("left_out")
    if ended.code and not left_out:
        return ended.code
    found = ended.summary
    left = f"; {len(left_out)} left out" if left_out else ""
    line = f"{uri}: {count(int(str(found.get('files'))), 'file')}, {size(found.get('bytes'))}; "
    line += f"{found.get('sent')} sent, {found.get('present')} there already{left}"
    facts = ("files", "bytes", "sent", "present", "bytes_sent")
    shown: dict[str, Json] = {"schema_version": SCHEMA_VERSION, "s3_uri": uri}
    shown |= {fact: found.get(fact) for fact in facts} | {"left_out": [*left_out]}
    console.write(formatted(output, [line], lambda: shown))
    if output == "table":
        # The narrowest URI that holds all that was sent.
        only = paths[0] if len(paths) == 1 and not paths[0].endswith("/") else ""
        sent = f"{uri}/{Path(only).name}{'/' * Path(only).is_dir() if only else ''}"
        there = f"{plan.platform.mount_path}/data/{PurePosixPath(sent).stem}"
        console.say(f"for pods: meks data fetch {sent} {there}")
    return ended.code


def fetch(uri: str, directory: str, place: Place, console: Console) -> int:
    """Bring an object, or all below a prefix, to the shared file system."""
    words = ["--s3-uri", uri, "--directory", directory]
    ended = programs.run(place, "fetch", words, console)
    if ended.code == DONE:
        files, held = ended.summary.get("files"), ended.summary.get("bytes")
        console.write(f"{directory}: {files} files, {size(held)} of {uri}\n")
    return ended.code


def _refused(found: str, remedy: str, exit_code: int = USAGE) -> Failure:
    return Failure(Code.NOTHING_TO_SEND, found, remedy, exit_code=exit_code)


def pull(source: str, directory: str, place: Place, console: Console) -> int:
    """Bring files of the shared file system to this machine."""
    whole = f"{normpath(source)}{'/' * source.endswith('/')}"
    way = shared_files.pull(place, whole, Path(directory))
    for each in way.left_out:
        console.say(f"error {each['path']}: left out: {each['why']}")
    text = f"{directory}: {count(way.whole, 'file')}, {size(way.size)} of {source}; "
    text += f"{way.whole - way.present} fetched, {way.present} here already"
    left = f"; {len(way.left_out)} left out" if way.left_out else ""
    console.write(f"{text}{left}\n")
    return CHECK_FAILED if way.left_out else DONE


def verify(
    prefix: str, tokenizer: str | None, place: Place, console: Console, *, output: str
) -> int:
    """Read a data set back and compare it with what was written down when it was prepared."""
    words = ["--verify", prefix, *(["--tokenizer", tokenizer] if tokenizer else [])]
    ended = programs.run(place, "prepare_data", words, console, quiet=output != "table")
    if ended.code not in {DONE, CHECK_FAILED}:
        return ended.code
    facts = {
        key: value
        for key, value in ended.summary.items()
        if key not in {"program", "findings", "seconds"}
    }
    plain = {key: value for key, value in facts.items() if not isinstance(value, dict)}
    width = max(map(len, plain), default=0)
    lines = [f"{key:{width}}  {value}" for key, value in plain.items()]
    findings: list[Json] = [*ended.names("findings")]
    shown: dict[str, Json] = {"schema_version": SCHEMA_VERSION, "prefix": prefix}
    shown |= {"passed": not ended.code, "facts": facts, "findings": findings}
    console.write(formatted(output, lines, lambda: shown))
    if output == "table":
        console.say(f"{prefix}: {'damaged' if ended.code else 'whole'}")
    return ended.code
