"""Guards of the training operator: its arguments, its rights, its webhook and its template.

Facts are those of kubeflow/training-operator v1.9.4: cmd/training-operator.v1/main.go, pkg/cert and
pkg/controller.v1.
"""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.values import YES, Row, Value

_NAME, _CERTIFICATE = "training-operator", "training-operator-webhook-cert"
_CONFIGURATION = "validator.training-operator.kubeflow.org"
_SERVING = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 -- compiled in
_ADMISSION, _WEBHOOKS = "admissionregistration.k8s.io", "validatingwebhookconfigurations"
_POD, _BOX = "template spec ", "template spec containers 0 "
_HANGS = "an operator that hangs is never started again, or asked too early"
_NO_START = "the operator does not start"
_TWICE = "two operators make two pods for each rank"
_SETTINGS: tuple[Row, ...] = (
    ("replicas", (1, None), _TWICE),
    ("strategy type", ("Recreate",), _TWICE),
    ("template metadata annotations megatron-eks/template", (), "an old template stays in use"),
    (f"{_POD}automountServiceAccountToken", (YES,), "it makes pods with its token"),
    (f"{_POD}priorityClassName", ("system-cluster-critical",), "it goes when a node is full"),
    (f"{_BOX}env name=MY_POD_NAMESPACE valueFrom", (), "its certificate is for another name"),
    (f"{_BOX}ports name=webhook containerPort", (9443,), "its webhook listens there"),
    (f"{_BOX}livenessProbe httpGet path", ("/healthz",), _HANGS),
    (f"{_BOX}livenessProbe httpGet port", ("health", 8081), _HANGS),
    (f"{_BOX}readinessProbe httpGet path", ("/readyz",), _HANGS),
    (f"{_BOX}readinessProbe httpGet port", ("health", 8081), _HANGS),
    (f"{_POD}volumes name=certificate secret secretName", (_CERTIFICATE,), _NO_START),
    (f"{_POD}volumes name=template configMap name", (_NAME,), _NO_START),
    (f"{_BOX}volumeMounts name=certificate mountPath", (_SERVING,), _NO_START),
    (f"{_BOX}volumeMounts name=template mountPath", ("/etc/config",), _NO_START),
)
_SLOW = "a job of 256 pods takes 13 s to start"
_ARGUMENTS = {
    "--enable-scheme": "it makes no pods for PyTorchJobs",
    "--namespace": "it watches all namespaces, and has no right to",
    "--pytorch-init-container-image": "workers wait in an image that is not pinned",
    "--pytorch-init-container-max-tries": "workers give up before a large image is pulled",
    **dict.fromkeys(("--kube-api-qps", "--kube-api-burst", "--controller-threads"), _SLOW),
    "--zap-devel": "its log is one for developers",
}
_READ, _MAKE = "get list watch", "get list watch create delete"
_JOBS, _OWN, _CLUSTER = "the jobs' namespace", "its own namespace", "the cluster"
_RIGHTS = (
    (_JOBS, "kubeflow.org", "pytorchjobs", f"{_READ} delete", "it sees no job, and ends none"),
    (_JOBS, "kubeflow.org", "pytorchjobs/status", "update", "jobs never say how they end"),
    (_JOBS, "kubeflow.org", "pytorchjobs/finalizers", "update", "no pod gets an owner"),
    (_JOBS, "", "pods", _MAKE, "it makes no pods"),
    (_JOBS, "", "services", _MAKE, "ranks have no names"),
    (_JOBS, "", "events", "create patch", "nobody reads why a job failed"),
    (_JOBS, "autoscaling", "horizontalpodautoscalers", f"{_MAKE} update", "elastic jobs block it"),
    (_JOBS, "scheduling.volcano.sh", "podgroups", _READ, "it stops where Volcano is installed"),
    (_JOBS, "scheduling.x-k8s.io", "podgroups", _READ, "it stops beside coscheduling"),
    (_OWN, "", "secrets", f"{_READ} update", "its webhook has no certificate"),
    (_CLUSTER, _ADMISSION, _WEBHOOKS, f"{_READ} update", "its webhook is not trusted"),
)
_GOES_ON = "jobs that the operator would refuse are taken, or none is"
_HOOK: tuple[Row, ...] = (
    ("metadata name", (_CONFIGURATION,), "the operator puts its certificate into another"),
    ("webhooks 0 clientConfig service path", ("/validate-kubeflow-org-v1-pytorchjob",), _GOES_ON),
    ("webhooks 0 clientConfig service port", (None, 443), _GOES_ON),
    ("webhooks 0 failurePolicy", ("Fail",), _GOES_ON),
    ("webhooks 0 rules 0 apiGroups", (["kubeflow.org"],), _GOES_ON),
    ("webhooks 0 rules 0 apiVersions", (["v1"],), _GOES_ON),
    ("webhooks 0 rules 0 operations", (["CREATE", "UPDATE"], ["UPDATE", "CREATE"]), _GOES_ON),
    ("webhooks 0 rules 0 resources", (["pytorchjobs"],), _GOES_ON),
    ("webhooks 0 rules 1", (None,), "the operator answers for one kind"),
    ("webhooks 1", (None,), "the operator answers at one path"),
)
_TEMPLATE = (
    *("name: ", "command:", "nslookup", "{{.MasterAddr}}", "{{.MaxTries}}"),
    *("{{.InitContainerImage}}", "limits:", "runAsNonRoot: true"),
    *("allowPrivilegeEscalation: false", "- ALL"),
)


@manifest_guard
def operator(manifests: Manifests) -> Iterator[Finding]:
    """Watch the jobs' kind and namespace by one operator, with its certificate and template.

    Without leader election two of them act on each job.
    """
    for pod in _operators(manifests):
        yield from pod.owner["spec"].must_hold(Code.OPERATOR, _SETTINGS)
        given = _arguments(pod)
        wrong = {name: why for name, why in _ARGUMENTS.items() if not given.get(name)}
        wrong |= {each: "it has no such option" for each in given if each not in _ARGUMENTS}
        if "pytorchjob" not in given.get("--enable-scheme", "").split(","):
            wrong["--enable-scheme=pytorchjob"] = "it makes no pods for PyTorchJobs"
        for job in manifests.of("PyTorchJob"):
            if given.get("--namespace") != job.namespace:
                wrong[f"--namespace={job.namespace}"] = f"it overlooks {job.name}"
        for name, why in wrong.items():
            remedy = f"write {name} with its value, or correct it"
            yield pod.main["args"].finding(Code.OPERATOR, f"{name} is not right: {why}", remedy)
        for kind, name, space in (
            ("Secret", _CERTIFICATE, pod.owner.namespace),
            ("CustomResourceDefinition", "pytorchjobs.kubeflow.org", ""),
        ):
            if manifests.of("ClusterRole") and manifests.named(kind, name, space) is None:
                place, found = pod.owner["metadata"]["name"], f"no {kind} {name}: {_NO_START}"
                yield place.finding(Code.OPERATOR, found, "apply it too")
        brief = [e["key"].text for e in pod.spec["tolerations"] if e["tolerationSeconds"].number]
        if sorted(brief) != ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]:
            found = "not-ready and unreachable are not tolerated for a short time alone: it stays"
            place = pod.spec["tolerations"]
            remedy = "add both: operator Exists, effect NoExecute, tolerationSeconds 30"
            yield place.finding(Code.TOLERATION, f"{found} on a lost node", remedy, Level.WARNING)


@manifest_guard
def operator_rights(manifests: Manifests) -> Iterator[Finding]:
    """Allow the operator what its code does for PyTorchJobs, by roles that are bound to it."""
    for pod in _operators(manifests):
        account = {"name": pod.spec["serviceAccountName"].raw, "namespace": pod.owner.namespace}
        bound = []
        for each in manifests.of("RoleBinding", "ClusterRoleBinding"):
            kind, name = each["roleRef"]["kind"].text, each["roleRef"]["name"].text
            role = manifests.named(kind, name, each.namespace)
            if role and {"kind": "ServiceAccount", **account} in [e.raw for e in each["subjects"]]:
                bound.append((each.namespace, role["rules"]))
        spaces = {_JOBS: _arguments(pod).get("--namespace"), _OWN: pod.owner.namespace}
        for where, group, resource, verbs, why in _RIGHTS:
            roles = [rules for space, rules in bound if space == spaces.get(where, "")]
            rules = [rule for role in roles for rule in role]
            wanted = ((verb, (group, resource, verb)) for verb in verbs.split())
            lacking = [e for e, right in wanted if not any(_gives(rule, right) for rule in rules)]
            if lacking:
                place = roles[0] if roles else pod.spec["serviceAccountName"]
                found = f"the operator may not {', '.join(lacking)} {resource}: {why}"
                remedy = f"bind a role with {verbs} for {resource} ({group!r}) to it in {where}"
                yield place.finding(Code.RIGHTS, found, remedy)


@manifest_guard
def webhooks(manifests: Manifests) -> Iterator[Finding]:
    """Ask the operator about each job: at its Service, path and name, which are compiled in."""
    for each in manifests.of("ValidatingWebhookConfiguration"):
        yield from each.body.must_hold(Code.WEBHOOK, _HOOK)
        service = each.body.at("webhooks 0 clientConfig service")
        target = manifests.named("Service", service["name"].text, service["namespace"].text)
        pods = _operators(manifests)
        if len(manifests.objects) > 1 and not pods:
            found = "no training operator: nobody answers, and nobody makes pods for jobs"
            yield service.finding(Code.OPERATOR, found, "apply its Deployment, its image pinned")
        ports = [port["port"].number for port in target["spec"]["ports"]] if target else []
        if pods and 443 not in ports:  # noqa: PLR2004 -- the port that the API server asks
            found = "no Service with port 443 is there: with failurePolicy Fail no job is taken"
            place = target["spec"]["ports"] if target else service
            yield place.finding(Code.WEBHOOK, found, "name the operator's Service; port 443")


@manifest_guard
def init_template(manifests: Manifests) -> Iterator[Finding]:
    """Keep the operator's template a container that waits, and that the namespace admits."""
    for each in manifests.of("ConfigMap"):
        text = each["data"]["initContainer.yaml"]
        lacking = [word for word in _TEMPLATE if word not in text.text]
        if each.name == _NAME and lacking:
            found = f"the template lacks {lacking[0]!r}: workers are refused, or never start"
            remedy = "correct it, or write the file anew with `make synth`"
            yield text.finding(Code.OPERATOR, found, remedy)


def _operators(manifests: Manifests) -> list[Pod]:
    """Return the operator's pod, if what it needs can be at hand too."""
    pods = [each for each in manifests.pods if each.owner.kind == "Deployment"]
    pods = [each for each in pods if _NAME in each.owner.name + each.main["image"].text]
    return pods if len(manifests.objects) > 1 else []


def _arguments(pod: Pod) -> dict[str, str]:
    return dict(each.text.partition("=")[::2] for each in pod.main["args"])


def _gives(rule: Value, right: tuple[str, str, str]) -> bool:
    keys = zip(("apiGroups", "resources", "verbs"), right, strict=True)
    named = set(rule["resourceNames"].texts)
    limited = named and (right[2] != "update" or not named & {_CERTIFICATE, _CONFIGURATION})
    return not limited and all({one, "*"} & set(rule[key].texts) for key, one in keys)
