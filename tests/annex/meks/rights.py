"""What a person may do with a server's kinds, and pods and requests that it must refuse."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from megatron_eks.kubernetes.client import ApiError, Object

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_QUEUES = "/apis/kueue.x-k8s.io/v1beta2"


def _resources(client):
    """Yield every kind that the server has, with parts of it such as logs."""
    groups = client.request("GET", "/apis")["groups"]
    served = [each["preferredVersion"]["groupVersion"] for each in groups]
    versions = [("", "/api/v1"), *((e.rpartition("/")[0], f"/apis/{e}") for e in served)]
    for group, path in versions:
        for each in client.request("GET", path)["resources"]:
            yield group, each["name"], each["namespaced"]


def allowed(client, team, namespace, *, namespaced):
    """Return what a group may do in a namespace, or in all where that is empty: verb by verb."""

    def ask(right):
        (group, name, _), verb = right
        resource, _, part = name.partition("/")
        attributes = {"group": group, "resource": resource, "subresource": part, "verb": verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "somebody",
                "groups": [team, "system:authenticated"],
                "resourceAttributes": {**attributes, "namespace": namespace},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return client.request("POST", path, review)["status"]["allowed"]

    kinds = [each for each in _resources(client) if each[2] or not namespaced]
    rights = list(itertools.product(kinds, VERBS))
    with ThreadPoolExecutor(8) as pool:
        found = zip(rights, pool.map(ask, rights), strict=True)
        return {(verb, name) for ((_, name, _), verb), allowed in found if allowed}


_PARTS = ("exec", "attach", "portforward", "eviction", "binding")
_MERGE: tuple[Object, str] = ({}, "application/merge-patch+json")
ATTEMPTS: tuple[tuple[Any, ...], ...] = (
    *(("POST", f"/api/v1/namespaces/vision/pods/any/{each}", {}) for each in _PARTS),
    ("POST", "/api/v1/namespaces/vision/serviceaccounts/default/token", {}),
    ("PATCH", "/api/v1/nodes/none", {"spec": {"unschedulable": True}}, *_MERGE),
    ("DELETE", f"{_QUEUES}/namespaces/vision/workloads/none"),
    ("POST", f"{_QUEUES}/namespaces/nlp/localqueues", {}),
    ("PATCH", f"{_QUEUES}/namespaces/nlp/workloads/none", {"spec": {"priority": 9}}, *_MERGE),
    ("PATCH", f"{_QUEUES}/clusterqueues/vision", {"spec": {"stopPolicy": "Hold"}}, *_MERGE),
)


def pod_of(user, **spec):
    """Return a pod of team nlp that runs as a user."""
    inner = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    of_pod = {"runAsUser": user, "runAsGroup": user, "runAsNonRoot": True}
    container = {"name": "main", "image": "a", "securityContext": inner}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tries", "namespace": "nlp"},
        "spec": {
            "containers": [container],
            "securityContext": {**of_pod, "seccompProfile": {"type": "RuntimeDefault"}, **spec},
        },
    }


def is_refused(client, pod):
    """Say whether the policy of users refuses a pod."""
    try:
        client.create(pod, dry_run=True)
    except ApiError as error:
        return "run as user and group" in str(error)
    return False
