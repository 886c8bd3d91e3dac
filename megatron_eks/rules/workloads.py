"""Kubernetes objects as the rules see them: pod templates, containers, variables, resources."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.pod_templates import REPLICA_SPECS, is_job, templates
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
HUGEPAGES = "hugepages-"

# The container for which the training operator writes the rendezvous.
MAIN_CONTAINER = "pytorch"

_LAUNCHER = re.compile(r"(^|[/\s;&|(\"'])torchrun($|[\s\"'])|torch\.distributed\.(run|launch)\b")


@dataclass(frozen=True)
class Variable:
    """One environment variable of a container."""

    index: int
    name: str
    value: str | None
    """None when it comes from elsewhere."""


@dataclass(frozen=True)
class Container:
    """One container of a pod."""

    path: Path
    body: "Mapping[str, Json]"
    is_init: bool

    @cached_property
    def name(self) -> str | None:
        """Its name, if it has one."""
        return text(self.body.get("name"))

    @cached_property
    def variables(self) -> list[Variable]:
        """Its variables, in order."""
        found = []
        given = self.body.get("env")
        if isinstance(given, dict):
            # No list, which is found elsewhere; what is meant is plain all the same.
            names = enumerate(given.items())
            return [Variable(index, name, text(value)) for index, (name, value) in names]
        for index, entry in enumerate(items(given) or []):
            body = mapping(entry) or {}
            name = text(body.get("name"))
            if name is not None:
                found.append(Variable(index, name, text(body.get("value"))))
        return found

    @cached_property
    def has_launcher(self) -> bool:
        """Tell whether the command line starts torchrun."""
        return any(_LAUNCHER.search(word) for _, word in self.words)

    @cached_property
    def line(self) -> str:
        """Command and arguments in one text."""
        return " ".join(word for _, word in self.words)

    def names(self, resource: str) -> bool:
        """Tell whether it asks for a resource, in whatever amount but none."""
        given = [self.amounts(kind).get(resource) for kind in ("limits", "requests")]
        return any(not is_absent(value) and quantity(value) != 0 for value in given)

    def amounts(self, kind: str) -> "dict[str, Json]":
        """Return its requests or limits as they are written."""
        resources = mapping(self.body.get("resources")) or {}
        return mapping(resources.get(kind)) or {}

    def requested(self, resource: str) -> Fraction:
        """Return what it keeps a node's share of; without a request its limit is one."""
        for kind in ("requests", "limits"):
            value = self.amounts(kind).get(resource)
            if not is_absent(value):
                return quantity(value) or Fraction(0)
        return Fraction(0)

    def amount(self, resource: str) -> Fraction | None:
        """Return how much of a resource it may use; a device's request is its limit."""
        for kind in ("limits", "requests"):
            value = self.amounts(kind).get(resource)
            if not is_absent(value):
                return quantity(value)
        return None

    @cached_property
    def words(self) -> list[tuple[Path, str]]:
        """Command and arguments, each with its place.

        What is no text is refused elsewhere, and stands for what it says.
        """
        return [
            ((*self.path, key, index), word)
            for key in ("command", "args")
            for index, value in enumerate(items(self.body.get(key)) or [])
            if (word := _word(value)) is not None
        ]


def asks_for_pages(container: Container) -> bool:
    """Tell whether a container names huge pages among its resources."""
    amounts = {**container.amounts("limits"), **container.amounts("requests")}
    return any(name.startswith(HUGEPAGES) for name in amounts)


def _word(value: Json) -> str | None:
    unquoted = isinstance(value, bool | int | float)
    return json.dumps(value) if unquoted else text(value)


@dataclass(frozen=True)
class Pod:
    """One pod template; `path` leads to its spec."""

    path: Path
    spec: "Mapping[str, Json]"
    replicas: int | None
    """How many pods of it run together, as far as the object says."""
    labels: "Mapping[str, Json]"
    annotations: "Mapping[str, Json]" = field(default_factory=dict)

    @cached_property
    def containers(self) -> list[Container]:
        """Its containers, the ones for initialisation last."""
        return [
            Container((*self.path, key, index), body, is_init=key == "initContainers")
            for key in ("containers", "initContainers")
            for index, value in enumerate(items(self.spec.get(key)) or [])
            if (body := mapping(value)) is not None
        ]

    def user_of(self, container: Container) -> int | None:
        """Return the user that a container, or else the pod, names for it."""
        own, common = (
            (mapping(each.get("securityContext")) or {}).get("runAsUser")
            for each in (container.body, self.spec)
        )
        return number(common if is_absent(own) else own)

    @property
    def host_network(self) -> bool:
        """Tell whether the pod uses its node's network."""
        return self.spec.get("hostNetwork") is True

    def names(self, resource: str) -> bool:
        """Tell whether a container asks for a resource, in whatever amount but none."""
        return any(container.names(resource) for container in self.containers)


@dataclass(frozen=True)
class Manifest:
    """One Kubernetes object."""

    body: "Mapping[str, Json]"
    file: str = ""
    plain: "Mapping[Path, str]" = field(default_factory=dict, compare=False)
    """How numbers of a Kustomization are written in its file."""

    @cached_property
    def group(self) -> str:
        """Its API group; empty for the core group."""
        version = text(self.body.get("apiVersion")) or ""
        return version.rpartition("/")[0]

    @cached_property
    def kind(self) -> str:
        """Its kind."""
        return text(self.body.get("kind")) or ""

    @cached_property
    def name(self) -> str | None:
        """Its name; None where the API server makes one up."""
        return text((mapping(self.body.get("metadata")) or {}).get("name"))

    @cached_property
    def namespace(self) -> str | None:
        """Its namespace; None where it is said elsewhere, or there is none."""
        name = text((mapping(self.body.get("metadata")) or {}).get("namespace"))
        return None if name is None or is_placeholder(name) else name

    @cached_property
    def labels(self) -> "Mapping[str, Json]":
        """Its own labels."""
        return mapping((mapping(self.body.get("metadata")) or {}).get("labels")) or {}

    @property
    def title(self) -> str:
        """How findings call it: `Kind/name`, or what its name begins with."""
        metadata = mapping(self.body.get("metadata")) or {}
        name = self.name or text(metadata.get("generateName"))
        # A Kustomization has none, as a rule.
        nameless = name is None and self.group == "kustomize.config.k8s.io" and self.kind
        return self.kind if nameless else f"{self.kind or '?'}/{name or '?'}"

    @cached_property
    def spec(self) -> "Mapping[str, Json]":
        """Its spec; empty when it has none."""
        return mapping(self.body.get("spec")) or {}

    @property
    def is_job(self) -> bool:
        """Tell whether its pods run to an end."""
        return is_job(self.group, self.kind)

    @cached_property
    def pytorch_replicas(self) -> "Mapping[str, Json] | None":
        """The replica types of a PyTorchJob of the training operator; None for other kinds."""
        if (self.group, self.kind) != ("kubeflow.org", "PyTorchJob"):
            return None
        return mapping(self.spec.get(REPLICA_SPECS[self.kind])) or {}

    def only_launches(self, pod: Pod) -> bool:
        """Tell whether no rank runs in a pod of an MPIJob: whatever it asks for idles."""
        return "Launcher" in pod.path and self.spec.get("runLauncherAsWorker") is not True

    @cached_property
    def pods(self) -> list[Pod]:
        """Its pod templates."""
        found = []
        for path, template, replicas in templates(self.group, self.kind, self.body):
            spec, metadata = mapping(template.get("spec")), mapping(template.get("metadata")) or {}
            labels, notes = (mapping(metadata.get(key)) or {} for key in ("labels", "annotations"))
            if spec:
                found.append(Pod((self.title, *path, "spec"), spec, replicas, labels, notes))
        return found

    def find(
        self, code: Code, path: Path, found: str, remedy: str, level: Level = Level.ERROR
    ) -> Finding:
        """Report something about this object; the path starts below it."""
        return Finding(code, (self.title, *path), found, remedy, level)
