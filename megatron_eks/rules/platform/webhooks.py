"""Rule over webhooks: the service that the API server calls."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, built_by_kustomize
from megatron_eks.rules.objects.pod_selection import pods_beside, selects
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_EVERY_POD = frozenset({"*", "*/*", "pods"})
_HTTPS = 443
# kubernetes-sigs/controller-runtime, pkg/webhook/server.go, DefaultPort.
_LISTENS = 9443
_OF_JOBS = frozenset({"jobset.x-k8s.io", "kubeflow.org", "kueue.x-k8s.io", "trainer.kubeflow.org"})
_LONGEST = 30
_CLOSE = 0.8


def services(together: ManifestSet) -> Iterator[Found]:
    """Require of a webhook's service that it is there and has the port.

    Kubernetes, "Dynamic Admission Control": with failurePolicy Fail no object is taken any more.
    """
    for manifest in together.of(*KINDS):
        for index, value in enumerate(items(manifest.body.get("webhooks")) or []):
            hook = mapping(value) or {}
            client = mapping(hook.get("clientConfig")) or {}
            service = mapping(client.get("service")) or {}
            name, space = text(service.get("name")), text(service.get("namespace"))
            path = ("webhooks", index, "clientConfig", "service")
            beside = [each for each in together.of("Service") if each.namespace == space]
            target = next((each for each in beside if each.name == name), None)
            # Kubebuilder writes "system", and its Kustomization the namespace.
            if name is None or space is None or space == "system":
                continue
            if target is None:
                same = [each for each in together.of("Service") if each.name == name]
                close = get_close_matches(name, [each.name or "" for each in beside], 1, _CLOSE)
                own = any(each.file == manifest.file for each in beside) and bool(manifest.file)
                known = same or close or (beside and together.makes_namespace(space))
                if known or own:
                    found = f"no Service {shown(name)} in namespace {shown(space)}"
                    there = ", ".join(f"{each.namespace}/{each.name}" for each in same or beside)
                    # Only a name that is elsewhere, or nearly there, says that it is a slip.
                    level = Level.ERROR if known else Level.WARNING
                    finding = manifest.find(Code.WEBHOOK, path, found, f"there: {there}", level)
                    yield manifest, finding
                continue
            port = number(service.get("port")) or _HTTPS
            listed = [mapping(each) or {} for each in items(target.spec.get("ports")) or []]
            ports = [number(each.get("port")) for each in listed]
            if ports and port not in ports:
                found = f"port {port}, and {target.title} has {', '.join(map(str, ports))}"
                remedy = "write a port of the Service, not of the pod"
                listens = _own_port(target, together)
                if listens is not None and listens not in [_target(each) for each in listed]:
                    remedy = f"add to the Service port: {port}, targetPort: {listens}"
                finding = manifest.find(Code.WEBHOOK, (*path, "port"), found, remedy)
                yield manifest, finding


def _own_port(service: Manifest, together: ManifestSet) -> int | None:
    """Return the port that the pods of a Service list for their webhook, if it is one."""
    selector = mapping(service.spec.get("selector")) or {}
    ports = [
        mapping(each) or {}
        for manifest, pod in pods_beside(service, together)
        if selector and selects(selector, manifest, pod)
        for container in pod.containers
        for each in items(container.body.get("ports")) or []
    ]
    named = {
        number(each.get("containerPort"))
        for each in ports
        if "webhook" in (text(each.get("name")) or "") or each.get("containerPort") == _LISTENS
    }
    return next(iter(named)) if len(named) == 1 else None


def _target(port: "dict[str, Json]") -> int | str | None:
    target = port.get("port") if is_absent(port.get("targetPort")) else port.get("targetPort")
    return number(target) or text(target)


def settings(manifest: Manifest) -> Iterator[Finding]:
    """Require of a webhook what the API server takes.

    Kubernetes, "Dynamic Admission Control", timeouts.
    """
    for index, value in enumerate(items(manifest.body.get("webhooks")) or []):
        hook, path = mapping(value) or {}, ("webhooks", index)
        # An older version has other defaults.
        version = text(manifest.body.get("apiVersion")) or ""
        if manifest.kind not in KINDS or not hook or not version.endswith("/v1"):
            continue
        seconds = number(hook.get("timeoutSeconds"))
        if seconds is not None and not 1 <= seconds <= _LONGEST:
            found = f"{seconds} seconds: the API server refuses it"
            remedy = f"write 1 to {_LONGEST}"
            yield manifest.find(Code.WEBHOOK, (*path, "timeoutSeconds"), found, remedy)
        if is_absent(hook.get("sideEffects")) or hook.get("sideEffects") in ("Some", "Unknown"):
            found = "the API server wants to know that it has no side effects"
            yield manifest.find(
                Code.WEBHOOK, (*path, "sideEffects"), found, "write sideEffects: None"
            )
        if is_absent(hook.get("admissionReviewVersions")):
            found = "no version of the question: the API server refuses it"
            place = (*path, "admissionReviewVersions")
            yield manifest.find(Code.WEBHOOK, place, found, "write admissionReviewVersions: [v1]")
        service = mapping((mapping(hook.get("clientConfig")) or {}).get("service")) or {}
        where = text(service.get("path"))
        if where and not where.startswith("/") and not is_placeholder(where):
            found = f"{shown(where)} does not start with /: the API server refuses it"
            inside = (*path, "clientConfig", "service", "path")
            yield manifest.find(Code.WEBHOOK, inside, found, f"write /{where}")


def stops_pods(together: ManifestSet) -> Iterator[Found]:
    """Warn of a webhook that every pod waits for, also its own.

    Kubernetes, "Dynamic Admission Control", "Avoiding deadlocks in self-hosted webhooks". What a
    Kustomization patches may have a selector in the end.
    """
    for manifest in together.of(*KINDS):
        patched = any(_is_patched(manifest, e) for e in built_by_kustomize(manifest, together))
        # An older version has other defaults.
        if patched or not (text(manifest.body.get("apiVersion")) or "").endswith("/v1"):
            continue
        for index, value in enumerate(items(manifest.body.get("webhooks")) or []):
            hook = mapping(value) or {}
            every = any(
                not _EVERY_POD.isdisjoint(map(str, items(rule.get("resources")) or []))
                for rule in [mapping(each) or {} for each in items(hook.get("rules")) or []]
            )
            narrow = not all(
                is_absent(hook.get(key))
                for key in ("matchConditions", "namespaceSelector", "objectSelector")
            )
            if every and not narrow and hook.get("failurePolicy", "Fail") == "Fail":
                found = "no pod starts anywhere while it does not answer, its own and DNS included"
                remedy = "leave kube-system and its own namespace out by a namespaceSelector"
                place = ("webhooks", index, "failurePolicy")
                yield manifest, manifest.find(Code.WEBHOOK, place, found, remedy, Level.WARNING)


def _is_patched(manifest: Manifest, kustomization: Manifest) -> bool:
    """Tell whether a Kustomization lays something over an object of this kind."""
    targets = [
        (mapping(value) or {}).get("target")
        for key in ("patches", "patchesJson6902")
        for value in items(kustomization.body.get(key)) or []
    ]
    kinds = {text((mapping(each) or {}).get("kind")) for each in targets}
    # Without a target the patch itself says what it is for.
    return bool(kinds & {None, manifest.kind}) or not is_absent(
        kustomization.body.get("patchesStrategicMerge")
    )


def paths(manifest: Manifest) -> Iterator[Finding]:
    """Require of a webhook of an operator its path by the kind, for resources in the plural.

    kubernetes-sigs/controller-runtime, pkg/builder/webhook.go, generateValidatePath: GROUP, VERSION
    and the kind in small letters; Kubernetes, "Dynamic Admission Control", rules: a resource is
    what its address says, and another one matches nothing.
    """
    for index, value in enumerate(items(manifest.body.get("webhooks")) or []):
        hook = mapping(value) or {}
        service = mapping((mapping(hook.get("clientConfig")) or {}).get("service")) or {}
        where = text(service.get("path")) or ""
        for number_, each in enumerate(items(hook.get("rules")) or []):
            rule = mapping(each) or {}
            groups, versions, names = (
                [text(one) or "" for one in items(rule.get(key)) or []]
                for key in ("apiGroups", "apiVersions", "resources")
            )
            if not len(groups) == len(versions) == len(names) == 1 or groups[0] not in _OF_JOBS:
                continue
            middle = f"-{groups[0].replace('.', '-')}-{versions[0]}-"
            kind = where.rpartition(middle)[2] if middle in where else ""
            if not kind or kind != names[0]:
                continue
            if kind.endswith("s"):
                found = (
                    f"{shown(where)}, where nobody answers: its path has the kind, not the plural"
                )
                place = ("webhooks", index, "clientConfig", "service", "path")
                yield manifest.find(Code.WEBHOOK, place, found, f"write {where[:-1]}")
            else:
                found = f"{shown(names[0])} is no resource: the webhook is asked about nothing"
                inside = ("webhooks", index, "rules", number_, "resources", 0)
                yield manifest.find(Code.WEBHOOK, inside, found, f"write {names[0]}s")


def actions(manifest: Manifest) -> Iterator[Finding]:
    """Require of a policy's binding what is to happen to what the policy refuses.

    Kubernetes, "Validating Admission Policy", validation actions: at least one is required.
    """
    given = manifest.spec.get("validationActions")
    if manifest.kind == "ValidatingAdmissionPolicyBinding" and (is_absent(given) or given == []):
        found = "no action: the API server refuses the binding"
        place = ("spec", "validationActions")
        yield manifest.find(Code.MISSING_FIELD, place, found, "write validationActions: [Deny]")
