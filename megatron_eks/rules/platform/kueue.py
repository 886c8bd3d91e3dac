"""Rules over Kueue: what a queue covers, and what the workloads in it ask for."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_QUEUE = "kueue.x-k8s.io/queue-name"
_TOPOLOGIES = frozenset(
    f"kueue.x-k8s.io/podset-{each}-topology" for each in ("preferred", "required", "unconstrained")
)
_PODS = "pods"
_FEWEST = "kueue.x-k8s.io/job-min-parallelism"


def admitted(together: ManifestSet) -> Iterator[Found]:
    """Require of a workload's queue that it covers, and may ever admit, all that is asked for.

    Kueue, "Cluster Queue", resource groups: a workload is admitted only if every resource that it
    asks for is covered and fits in the quota; otherwise it stays suspended, without an error.
    """
    for job in together.objects:
        name = text(job.labels.get(_QUEUE))
        # Beside several of one name in other files nobody can tell which one is meant.
        named = [each for each in together.of("LocalQueue") if each.name == name]
        many = len({each.file for each in named}) > 1
        local = together.named(job, "LocalQueue", name) if name else None
        if local is not None and many and local.file != job.file:
            continue
        queue_name = text(local.spec.get("clusterQueue")) if local is not None else None
        queue = together.named(job, "ClusterQueue", queue_name) if queue_name else None
        if queue is None or not job.pods:
            continue
        quotas = _quotas(queue)
        if not quotas:
            continue
        everything = _asked(job)
        for resource, asked in sorted(everything.items()):
            if resource not in quotas and _may_be_counted(resource, quotas, everything):
                continue
            if resource not in quotas:
                found = f"{queue.title} does not cover {resource}: the job stays suspended"
                path = ("spec", "resourceGroups")
                remedy = f"add {resource} to coveredResources, with a nominalQuota"
                yield (
                    queue,
                    queue.find(
                        Code.QUEUE, path, f"{job.title} asks for {resource}, and " + found, remedy
                    ),
                )
            elif quotas[resource] is not None and asked * _least(job) > (quotas[resource] or 0):
                most = _shown(quotas[resource] or Fraction(0))
                found = f"{_shown(asked)} of {resource}, and {queue.title} has {most}: "
                found += "it is never admitted"
                remedy = "raise nominalQuota, or ask for less"
                yield job, job.find(Code.QUEUE, ("metadata", "labels", _QUEUE), found, remedy)


def _may_be_counted(
    resource: str, quotas: Mapping[str, Fraction | None], asked: Mapping[str, Fraction]
) -> bool:
    """Tell whether Kueue may count a resource under another name, which the queue covers.

    Kueue, "Administer Cluster Quotas", resources.transformations of its own configuration.
    """
    domain = resource.partition("/")[0]
    others = [each for each in quotas if each not in asked and each.partition("/")[0] == domain]
    return "/" in resource and bool(others)


def _least(job: Manifest) -> Fraction:
    """Return the share of its pods with which a job may be admitted.

    Kueue, "Run A Kubernetes Job", partial admission.
    """
    notes = mapping((mapping(job.body.get("metadata")) or {}).get("annotations")) or {}
    fewest, most = quantity(notes.get(_FEWEST)), quantity(job.spec.get("parallelism"))
    return fewest / most if fewest and most and fewest < most else Fraction(1)


def _shown(amount: Fraction) -> str:
    return f"{float(amount / 2**30):g}Gi" if amount >= 2**30 else f"{float(amount):g}"


def _quotas(queue: Manifest) -> dict[str, Fraction | None]:
    """Return the most that a queue may admit of each resource; None where nobody can know."""
    borrows = not is_absent(queue.spec.get("cohort")) or not is_absent(queue.spec.get("cohortName"))
    found: dict[str, Fraction | None] = {}
    for value in items(queue.spec.get("resourceGroups")) or []:
        group = mapping(value) or {}
        for each in items(group.get("coveredResources")) or []:
            found.setdefault(str(each), Fraction(0))
        for flavor in items(group.get("flavors")) or []:
            for entry in items((mapping(flavor) or {}).get("resources")) or []:
                body = mapping(entry) or {}
                name, amount = str(body.get("name")), quantity(body.get("nominalQuota"))
                before = found.get(name, Fraction(0))
                known = amount is not None and before is not None and not borrows
                found[name] = (before or Fraction(0)) + (amount or 0) if known else None
    return found


def _asked(job: Manifest) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for pod in job.pods:
        count = 1 if pod.replicas is None else pod.replicas
        for container in pod.containers:
            names: Mapping[str, Json] = {
                **container.amounts("limits"),
                **container.amounts("requests"),
            }
            for name in names if not container.is_init else ():
                total[name] = total.get(name, Fraction(0)) + container.requested(name) * count
    return {name: amount for name, amount in total.items() if amount}


def queues(manifest: Manifest) -> Iterator[Finding]:
    """Require of a ClusterQueue a namespace that may use it, and of its groups what Kueue reads.

    Kueue, "Cluster Queue": without namespaceSelector no namespace may use it; the flavors list
    the resources in the order of coveredResources, or the webhook refuses the queue.
    """
    if not manifest.group.startswith("kueue.x-k8s.io"):
        yield from _misplaced(manifest)
        return
    if manifest.kind != "ClusterQueue":
        return
    if is_absent(manifest.spec.get("namespaceSelector")):
        found = "no namespaceSelector, so no namespace may use it: every job stays suspended"
        remedy = "write namespaceSelector: {} for all of them"
        yield manifest.find(Code.QUEUE, ("spec", "namespaceSelector"), found, remedy)
    if text(manifest.spec.get("stopPolicy")) in {"Hold", "HoldAndDrain"}:
        found = "the queue is stopped, and admits no job"
        remedy = "remove it when jobs shall run"
        yield manifest.find(Code.QUEUE, ("spec", "stopPolicy"), found, remedy, Level.WARNING)
    for index, value in enumerate(items(manifest.spec.get("resourceGroups")) or []):
        group = mapping(value) or {}
        covered = [text(each) for each in items(group.get("coveredResources")) or []]
        for place, flavor in enumerate(items(group.get("flavors")) or []):
            body = mapping(flavor) or {}
            listed = [mapping(each) or {} for each in items(body.get("resources")) or []]
            names = [text(each.get("name")) for each in listed]
            path = ("spec", "resourceGroups", index, "flavors", place, "resources")
            if names != covered and None not in names:
                found = "not the resources of coveredResources in their order: Kueue refuses it"
                remedy = f"list {', '.join(map(str, covered))}"
                yield manifest.find(Code.QUEUE, path, found, remedy)


def _misplaced(manifest: Manifest) -> Iterator[Finding]:
    """Find a queue that is named where Kueue does not look."""
    if not manifest.is_job or _QUEUE in manifest.labels or manifest.kind == "CronJob":
        return
    metadata = mapping(manifest.body.get("metadata")) or {}
    annotations = mapping(metadata.get("annotations")) or {}
    on_pods = any(_QUEUE in pod.labels for pod in manifest.pods)
    if _QUEUE in annotations or on_pods:
        where = "an annotation" if _QUEUE in annotations else "a label of the pods"
        found = f"the queue stands in {where}, and Kueue reads the job's labels: it is not queued"
        path = ("metadata", "labels")
        remedy = f"write {_QUEUE} under metadata.labels"
        yield manifest.find(Code.QUEUE, path, found, remedy, Level.WARNING)


def placed(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a demand for a topology that stands at the job.

    Kueue, "Topology Aware Scheduling": it is read at the pod templates, and in a job's own
    annotations it does nothing.
    """
    notes = mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}
    for key in notes if manifest.pods and (manifest.group, manifest.kind) != ("", "Pod") else ():
        if key in _TOPOLOGIES:
            found = "Kueue reads it at the pod templates, and not here: pods go anywhere"
            path = ("metadata", "annotations", key)
            remedy = "move it to the annotations of each pod template"
            yield manifest.find(Code.QUEUE, path, found, remedy, Level.WARNING)


def flavors(together: ManifestSet) -> Iterator[Found]:
    """Warn of a flavor that no object has, and of one whose nodes the pods do not accept.

    Kueue, "Resource Flavor": a queue with a missing flavor is inactive; nodeLabels are added to
    the pods' own selectors, and both must be met.
    """
    known = {each.name: each for each in together.of("ResourceFlavor")}
    for queue in together.of("ClusterQueue"):
        for index, value in enumerate(items(queue.spec.get("resourceGroups")) or []):
            for place, each in enumerate(items((mapping(value) or {}).get("flavors")) or []):
                name = text((mapping(each) or {}).get("name"))
                if name is not None and known and name not in known:
                    found = f"no ResourceFlavor {shown(name)}: the queue is inactive"
                    path = ("spec", "resourceGroups", index, "flavors", place, "name")
                    remedy = f"there: {', '.join(sorted(filter(None, known)))}"
                    # The only flavor of the folder, which no queue names, is what is meant.
                    meant = next(iter(known.values()))
                    lone = len(known) == 1 and in_one_folder(queue, meant)
                    lone = lone and meant.name not in _named_flavors(together)
                    level = Level.ERROR if lone else Level.WARNING
                    yield queue, queue.find(Code.QUEUE, path, found, remedy, level)


def _named_flavors(together: ManifestSet) -> set[str | None]:
    return {
        text((mapping(each) or {}).get("name"))
        for queue in together.of("ClusterQueue")
        for group in items(queue.spec.get("resourceGroups")) or []
        for each in items((mapping(group) or {}).get("flavors")) or []
    }


def namespaces(together: ManifestSet) -> Iterator[Found]:
    """Warn of a queue whose namespaceSelector leaves out a namespace that has a LocalQueue for it.

    Kueue, "Cluster Queue", namespaceSelector: the workloads of other namespaces are inadmissible.
    """
    for local in together.of("LocalQueue"):
        name = text(local.spec.get("clusterQueue"))
        queue = together.named(local, "ClusterQueue", name) if name else None
        space = next((e for e in together.of("Namespace") if e.name == local.namespace), None)
        selector = mapping(queue.spec.get("namespaceSelector")) if queue is not None else None
        if queue is None or space is None or local.namespace is None or not selector:
            continue
        given = {**space.labels, "kubernetes.io/metadata.name": space.name}
        missing = _unmet(selector, given)
        if missing is not None:
            found = f"{space.title} has no label {missing}, so nothing of {local.title} is admitted"
            path, remedy = ("spec", "namespaceSelector"), f"label the namespace {missing}"
            yield queue, queue.find(Code.QUEUE, path, found, remedy, Level.WARNING)


def _unmet(selector: Mapping[str, Json], given: Mapping[str, Json]) -> str | None:
    """Return what a selector asks for and labels lack."""
    for key, value in (mapping(selector.get("matchLabels")) or {}).items():
        if given.get(key) != value and not is_placeholder(f"{value}{given.get(key)}"):
            return f"{key}={value}"
    for each in items(selector.get("matchExpressions")) or []:
        body = mapping(each) or {}
        key, operator = str(body.get("key")), body.get("operator")
        values = items(body.get("values")) or []
        if operator == "In" and given.get(key) not in values:
            return f"{key}={values[0] if values else ''}"
        if operator == "Exists" and key not in given:
            return key
    return None


def borrowing(manifest: Manifest) -> Iterator[Finding]:
    """Refuse limits of borrowing and lending in a queue that is in no cohort, and twice a resource.

    Kueue, "Cluster Queue" and "Cohort": its webhook refuses them; a resource or a flavor is in one
    resource group.
    """
    if manifest.kind != "ClusterQueue" or not manifest.group.startswith("kueue.x-k8s.io"):
        return
    alone = all(is_absent(manifest.spec.get(key)) for key in ("cohort", "cohortName"))
    seen: set[tuple[str, str]] = set()
    for index, value in enumerate(items(manifest.spec.get("resourceGroups")) or []):
        group, path = mapping(value) or {}, ("spec", "resourceGroups", index)
        flavors_of = [mapping(each) or {} for each in items(group.get("flavors")) or []]
        listed = [("resource", text(each)) for each in items(group.get("coveredResources")) or []]
        listed += [("flavor", text(each.get("name"))) for each in flavors_of]
        for what, name in listed:
            if name is not None and (what, name) in seen:
                found = f"{what} {shown(name)} twice: Kueue refuses the queue"
                yield manifest.find(Code.QUEUE, path, found, "keep it in one resource group")
            seen.add((what, name or ""))
        for place, flavor in enumerate(flavors_of):
            for number, entry in enumerate(items(flavor.get("resources")) or []):
                body = mapping(entry) or {}
                for key in ("borrowingLimit", "lendingLimit"):
                    if alone and not is_absent(body.get(key)):
                        found = f"{key}, and the queue is in no cohort: Kueue refuses it"
                        deep = (*path, "flavors", place, "resources", number, key)
                        yield manifest.find(Code.QUEUE, deep, found, "name a cohort, or remove it")
