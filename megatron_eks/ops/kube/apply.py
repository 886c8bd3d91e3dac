"""`meks apply`: manifests brought into the cluster in order, and what has gone taken out."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import DONE, FAILED, USAGE
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube import objects, prune, readiness
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.objects import CLUSTER_LABEL, Key, key
from megatron_eks.ops.kube.preflight.facts import SET_UP
from megatron_eks.plan.platform import OPERATOR_NAMESPACE
from megatron_eks.project import Project

_DRY_RUNS = 8
# Where the last of a stage must work before the next begins: CRDs, and workloads with a webhook.
_AWAITED = (1, 3)

_VERBS = {"create": "created", "change": "changed", "adopt": "adopted", "remove": "removed"}
_OPERATOR = Key("apps", "Deployment", OPERATOR_NAMESPACE, "training-operator")


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    paths: Sequence[Path] = ()
    """Files and folders; none: the platform, which is also pruned."""
    platform: Path = Path("dist/platform")
    only_diff: bool = False
    previews: bool = False
    wait_seconds: float = 600


@dataclass(frozen=True)
class Change:
    """What applying does to one object."""

    verb: str
    """create, change, adopt, remove, keep (it would go, but holds too much), or nothing."""
    key: Key
    manifest: Object = field(repr=False)
    lines: tuple[str, ...] = ()


def run(access: Access, project: Project, options: Options, console: Console) -> int:
    """Show what changes, ask, apply, wait; a second run finds nothing to do."""
    plan, client = project.cluster, access.client
    is_platform = not options.paths
    wanted = objects.read(options.paths or [options.platform])
    refuse_previews(wanted, access, project, allowed=options.previews)
    if access.is_local:
        # There it is a process of this machine.
        wanted = [each for each in wanted if key(each) != _OPERATOR]
    if is_platform:
        for each in wanted:
            each["metadata"].setdefault("labels", {})[CLUSTER_LABEL] = plan.name
        _refuse_foreign(client, wanted, plan.name)
    changes = _changes(client, wanted)
    if is_platform:
        changes += _leftovers(client, plan.name, wanted)
    show(changes, console)
    acting = [each for each in changes if each.verb in _VERBS]
    if options.only_diff:
        return DONE
    if acting:
        if plan.storage.existing and any(_is_set_up(each) for each in acting):
            directories = plan.platform.shared_directories
            console.say(f"on {project.outputs.lustre.id}, which exists, the Job {directories}")
        if not console.confirm(f"Apply to {client.server}?"):
            console.say("nothing was changed")
            return FAILED
        _carry_out(client, acting, console, options.wait_seconds)
    if is_platform:
        readiness.wait(client, wanted, console, options.wait_seconds)
        console.say("the platform is ready")
    return DONE


def _is_set_up(change: Change) -> bool:
    labels = change.manifest["metadata"].get("labels") or {}
    return change.verb != "remove" and labels.get("app") == SET_UP


def refuse_previews(
    wanted: Sequence[Object], access: Access, project: Project, *, allowed: bool
) -> None:
    """Refuse objects with placeholders, unless a local cluster is to take them."""
    found = objects.previews(wanted)
    if not found or (allowed and access.is_local):
        return
    # The finding that synthesis printed says what is missing, and which command provides it.
    remedies = [finding.remedy for finding in project.preview]
    remedy = f"{remedies[0]}; then: make synth" if remedies else "write it again: make synth"
    if access.is_local:
        remedy += "; or add --preview, for a rehearsal on this local cluster"
    names = ", ".join(str(key(each)) for each in found[:3]) + (", ..." if found[3:] else "")
    message = f"placeholders for what AWS has not chosen yet, in {names}"
    raise Failure(Code.PREVIEW_REFUSED, message, remedy, exit_code=USAGE)


def _refuse_foreign(client: Client, wanted: Sequence[Object], name: str) -> None:
    """Refuse namespaces that another cluster file has set up."""
    for each in wanted:
        if each["kind"] != "Namespace":
            continue
        live = client.find("v1", "Namespace", each["metadata"]["name"])
        owner = ((live or {}).get("metadata", {}).get("labels") or {}).get(CLUSTER_LABEL, name)
        if owner != name:
            found = f"{key(each)} belongs to cluster {owner!r}, and the cluster file says {name!r}"
            remedy = "name the right file with --cluster, or the right context with --context"
            raise Failure(Code.OWNED_BY_ANOTHER, found, remedy, exit_code=USAGE)


def _changes(client: Client, wanted: Sequence[Object]) -> list[Change]:
    """Ask the server what it would make of each object."""
    new_namespaces = {
        each["metadata"]["name"]
        for each in wanted
        if each["kind"] == "Namespace"
        and client.find("v1", "Namespace", each["metadata"]["name"]) is None
    }
    with ThreadPoolExecutor(_DRY_RUNS) as pool:
        return list(pool.map(lambda each: _change(client, each, new_namespaces), wanted))


def _change(client: Client, manifest: Object, new_namespaces: set[str]) -> Change:
    found, metadata = key(manifest), manifest["metadata"]
    if found.namespace in new_namespaces:
        return Change("create", found, manifest)
    try:
        live = client.find(
            manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace")
        )
        after = client.apply(manifest, dry_run=True)
    except ApiError as error:
        # A kind whose CRD comes with the same files.
        if error.status == HTTPStatus.NOT_FOUND and objects.stage(manifest) > _AWAITED[-1]:
            return Change("create", found, manifest)
        # Of Jobs "field is immutable", of claims and volumes "is immutable after creation".
        if "is immutable" in str(error):
            place = f"-n {found.namespace} " if found.namespace else ""
            remedy = f"remove it, then again: kubectl {place}delete {found.kind} {found.name}"
            if found.kind == "PersistentVolumeClaim":
                remedy += "; files stay, and it goes when no pod uses it"
            message = f"{found} exists with fields that cannot change"
            raise Failure(Code.KUBERNETES_REFUSED, message, remedy) from error
        raise ApiError(error.status, error.reason, f"{found}: {error}") from error
    if live is None:
        return Change("create", found, manifest)
    lines = objects.differences(live, after)
    if lines and not objects.differences(objects.labelled(live, after), after):
        # Somebody else applied it, kubectl perhaps: from now on it is pruned with the rest.
        return Change("adopt", found, manifest)
    return Change("change" if lines else "", found, manifest, tuple(lines))


def _leftovers(client: Client, name: str, wanted: Sequence[Object]) -> list[Change]:
    emitted = {key(each) for each in wanted}
    return [
        Change("keep" if prune.holds_data(each) else "remove", key(each), each)
        for each in prune.owned(client, name)
        if key(each) not in emitted
    ]


def show(changes: Sequence[Change], console: Console) -> None:
    """Write each change, and for an object that stays what differs in it."""
    for each in changes:
        if each.verb == "keep":
            console.say(
                f"note: {each.key} is no longer emitted and stays, because others may depend on "
                "it; remove it yourself with kubectl delete"
            )
        elif each.verb:
            console.write(f"{each.verb} {each.key}\n")
            console.write("".join(f"    {line}\n" for line in each.lines))
    verbs = [each.verb for each in changes]
    counts = [f"{verbs.count(verb)} to {verb}" for verb in _VERBS]
    counts = [each for each in counts if not each.startswith("0 ")]
    console.say(f"{', '.join(counts) or 'no changes'}, {verbs.count('')} objects as they should be")


def _carry_out(client: Client, changes: Sequence[Change], console: Console, seconds: float) -> None:
    applied = [each for each in changes if each.verb != "remove"]
    last = max((objects.stage(each.manifest) for each in applied), default=0)
    for number in range(last + 1):
        current = [each for each in applied if objects.stage(each.manifest) == number]
        for each in current:
            client.apply(each.manifest)
            console.say(f"{_VERBS[each.verb]} {each.key}")
        if number in _AWAITED and number < last:
            # Nothing that follows asks for the end of a Job.
            awaited = [each.manifest for each in current if each.key.kind != "Job"]
            readiness.wait(client, awaited, console, seconds)
    for each in changes:
        if each.verb == "remove":
            version, place = each.manifest["apiVersion"], each.key
            client.delete(version, place.kind, place.name, place.namespace, missing_ok=True)
            console.say(f"removed {place}")
