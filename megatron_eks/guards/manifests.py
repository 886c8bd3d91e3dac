"""Kubernetes objects that are applied together: objects by kind, their pods and containers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from megatron_eks.catalog.pins import POD_UID, TEAM_LABEL, UID_LABEL
from megatron_eks.catalog.workloads import WITH_PODS
from megatron_eks.config.load import Json
from megatron_eks.config.outputs import CLUSTER_ANNOTATION
from megatron_eks.guards.values import Guards, Place, Value, inside

CLUSTER_MARK = f"metadata annotations {CLUSTER_ANNOTATION}"
_TEMPLATE_KINDS = ("DaemonSet", "Deployment")
_CLUSTER_WIDE = {"ClusterRole", "CustomResourceDefinition", "Namespace", "PersistentVolume"}
_CLUSTER_WIDE |= {"PriorityClass", "ValidatingWebhookConfiguration"}


@dataclass(frozen=True)
class Pod:
    """A pod template, or a pod."""

    owner: "Object"
    replica: str
    """Master or Worker, of a PyTorchJob."""
    metadata: Value
    spec: Value

    @cached_property
    def labels(self) -> Mapping[str, Json]:
        """The labels; those that the training operator or the Job adds are among them."""
        given = self.metadata["labels"].raw
        labels = dict(given) if isinstance(given, dict) else {}
        if self.of_job and not WITH_PODS[self.owner.kind].runtime:
            labels[WITH_PODS[self.owner.kind].job_label] = self.owner.name
        if self.owner.kind == "PyTorchJob":
            labels["training.kubeflow.org/replica-type"] = self.replica.lower()
        elif self.owner.kind == "Job":
            labels["job-name"] = self.owner.name
        return labels

    @property
    def of_job(self) -> bool:
        """Tell whether it belongs to a job."""
        return self.owner.kind in WITH_PODS

    @cached_property
    def containers(self) -> list[Value]:
        """All containers, those that initialise first."""
        return [*self.spec["initContainers"], *self.spec["containers"]]

    @property
    def main(self) -> Value:
        """The container that does the work: PyTorchJobs call it `pytorch`."""
        return self.spec["containers"].at("name=pytorch") or self.spec["containers"][0]

    def setting(self, container: Value, key: str) -> Value:
        """Return a setting of a container's security context, or that of its pod."""
        return container["securityContext"][key] or self.spec["securityContext"][key]

    def asks(self, resource: str) -> bool:
        """Tell whether a container asks for some of a resource, such as `nvidia.com/gpu`."""
        given = [each["resources"] for each in self.containers]
        return any(e[kind][resource].quantity for e in given for kind in ("limits", "requests"))


class Object:
    """One Kubernetes object; `each["spec"]` is a part of it."""

    def __init__(self, body: Value) -> None:
        self.body = body
        self.kind = body["kind"].text
        self.name = body["metadata"]["name"].text
        self.namespace = body["metadata"]["namespace"].text
        self.labels = body["metadata"]["labels"]

    def __getitem__(self, key: str) -> Value:
        """Return what stands under a key of the object."""
        return self.body[key]

    @property
    def run(self) -> Value:
        """What says how it runs, in a runtime too."""
        of_runtime = self.kind in WITH_PODS and WITH_PODS[self.kind].runtime
        return self.body.at("spec template spec") if of_runtime else self.body["spec"]

    @cached_property
    def holders(self) -> list[Value]:
        """What pod templates stand in."""
        path = " ".join(WITH_PODS[self.kind].templates) if self.kind in WITH_PODS else ""
        return [*self.run.every(path)] if self.kind in (*_TEMPLATE_KINDS, *WITH_PODS) else []

    @property
    def wanted(self) -> int:
        """How many pods a job is to have."""
        count = WITH_PODS[self.kind].count
        return int(sum(each[count].number or 0 for each in self.holders)) or 1

    @cached_property
    def pods(self) -> list[Pod]:
        """The pods that it makes."""
        if self.kind == "Pod":
            return [Pod(self, "", self.body["metadata"], self.body["spec"])]
        pods = ((each.name, each["template"]) for each in self.holders)
        return [Pod(self, role, each["metadata"], each["spec"]) for role, each in pods]

    @cached_property
    def parts(self) -> list[Value]:
        """Everything that is written in it, but in the schemas of a definition."""
        return [] if self.kind == "CustomResourceDefinition" else inside(self.body)

    @property
    def main_pod(self) -> Pod | None:
        """The pod of a PyTorchJob's master, or the only one."""
        one = self.kind != "PyTorchJob"
        return next((each for each in self.pods if one or each.replica == "Master"), None)


class Manifests:
    """The objects of one cluster: its platform, its validation, its jobs, or some of them."""

    def __init__(self, bodies: Sequence[Value], pools: Mapping[str, str] = {}) -> None:
        self.pools = pools
        """The pools of the templates beside them, if there are any, with their instance types."""
        self.objects = [Object(each) for each in bodies]
        self._by_kind: dict[str, list[Object]] = {}
        self._by_name: dict[tuple[str, str, str], Object] = {}
        for each in self.objects:
            self._by_kind.setdefault(each.kind, []).append(each)
            space = "" if each.kind in _CLUSTER_WIDE else each.namespace
            self._by_name.setdefault((each.kind, each.name, space), each)

    def of(self, *kinds: str) -> list[Object]:
        """Return the objects of some kinds."""
        return [each for kind in kinds for each in self._by_kind.get(kind, ())]

    @cached_property
    def pods(self) -> list[Pod]:
        """Every pod of every object."""
        return [pod for each in self.objects for pod in each.pods]

    def user(self, namespace: str) -> int | None:
        """Return the user of the pods of jobs: a team's namespace names its own, or should."""
        space = self.named("Namespace", namespace)
        text = space.labels[UID_LABEL].text if space else ""
        if space and space.labels[TEAM_LABEL] and not text:
            return None
        return int(text) if text.isdecimal() else POD_UID

    def policies_of(self, pod: Pod) -> list[Object]:
        """Return the network policies that hold for a pod."""
        pairs = {*map(str, pod.labels.items())}
        of_space = self._policies.get(pod.owner.namespace, ())
        return [each for wanted, each in of_space if wanted <= pairs]

    @cached_property
    def _policies(self) -> dict[str, list[tuple[set[str], Object]]]:
        found: dict[str, list[tuple[set[str], Object]]] = {}
        for each in self.of("NetworkPolicy"):
            labels = each["spec"]["podSelector"]["matchLabels"].items()
            wanted = {str((key, value.raw)) for key, value in labels}
            found.setdefault(each.namespace, []).append((wanted, each))
        return found

    def named(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return the object of that name; the namespace matters for kinds that have one."""
        return self._by_name.get((kind, name, "" if kind in _CLUSTER_WIDE else namespace))


manifest_guard = Guards[Manifests]()
"""Registers a guard of manifests."""


def is_manifest(value: Json) -> bool:
    """Tell a Kubernetes object, also an incomplete one, from other mappings."""
    if not isinstance(value, dict):
        return False
    marks = [key in value for key in ("apiVersion", "kind", "metadata")]
    named = isinstance(value.get("kind"), str) or isinstance(value.get("apiVersion"), str)
    return marks.count(True) > 1 and named


def body_at(raw: Json, file: str, line: Callable[[], int] = lambda: 0) -> Value:
    """Return an object's body; findings about it begin with `Kind/name`."""
    body = Value(raw, Place(file, ()))
    title = f"{body['kind'].text or '?'}/{body['metadata']['name'].text or '?'}"
    return Value(raw, Place(file, (title,), line))
