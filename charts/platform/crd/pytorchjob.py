"""The fields of kubeflow.org/v1 PyTorchJob, as training operator 1.9 knows them."""

from collections.abc import Iterable, Mapping

from charts.platform.crd.definitions import Schema

GROUP = "kubeflow.org"
VERSION = "v1"
KIND = "PyTorchJob"
PLURAL = "pytorchjobs"

_STRING: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}
_INT32: Schema = {"type": "integer", "format": "int32"}
_INT64: Schema = {"type": "integer", "format": "int64"}
_TIME: Schema = {"type": "string", "format": "date-time"}


def definition(
    *, pod_template: Schema, metric: Schema, quantity: Schema, label_selector: Schema
) -> Schema:
    """Return the CustomResourceDefinition around the Kubernetes types that it contains."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {
                            "name": "State",
                            "type": "string",
                            "jsonPath": ".status.conditions[-1:].type",
                        },
                        {
                            "name": "Age",
                            "type": "date",
                            "jsonPath": ".metadata.creationTimestamp",
                        },
                    ],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
                            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
                            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
                        },
                    },
                    "schema": {
                        "openAPIV3Schema": _object(
                            {
                                "apiVersion": _STRING,
                                "kind": _STRING,
                                "metadata": {"type": "object"},
                                "spec": _spec(pod_template, metric, quantity),
                                "status": _status(label_selector),
                            }
                        )
                    },
                }
            ],
        },
    }


def _spec(pod_template: Schema, metric: Schema, quantity: Schema) -> Schema:
    replica = {"replicas": _INT32, "restartPolicy": _STRING, "template": pod_template}
    return _object(
        {
            "elasticPolicy": _elastic_policy(metric),
            "nprocPerNode": _STRING,
            "pytorchReplicaSpecs": _map(_object(replica)),
            "runPolicy": _run_policy(quantity),
        },
        required=["pytorchReplicaSpecs"],
    )


def _elastic_policy(metric: Schema) -> Schema:
    return _object(
        {
            "maxReplicas": _INT32,
            "maxRestarts": _INT32,
            "metrics": _list(metric),
            "minReplicas": _INT32,
            "nProcPerNode": _INT32,
            "rdzvBackend": _STRING,
            "rdzvConf": _list(_object({"key": _STRING, "value": _STRING})),
            "rdzvHost": _STRING,
            "rdzvId": _STRING,
            "rdzvPort": _INT32,
            "standalone": _BOOLEAN,
        }
    )


def _run_policy(quantity: Schema) -> Schema:
    immutable = {
        "rule": "self == oldSelf",
        "message": "spec.runPolicy.schedulingPolicy.queue is immutable",
    }
    return _object(
        {
            "activeDeadlineSeconds": _INT64,
            "backoffLimit": _INT32,
            "cleanPodPolicy": _STRING,
            "managedBy": _STRING,
            "schedulingPolicy": _object(
                {
                    "minAvailable": _INT32,
                    "minResources": _map(quantity),
                    "priorityClass": _STRING,
                    "queue": {**_STRING, "x-kubernetes-validations": [immutable]},
                    "scheduleTimeoutSeconds": _INT32,
                }
            ),
            "suspend": {**_BOOLEAN, "default": False},
            "ttlSecondsAfterFinished": _INT32,
        }
    )


def _status(label_selector: Schema) -> Schema:
    condition = _object(
        {
            "lastTransitionTime": _TIME,
            "lastUpdateTime": _TIME,
            "message": _STRING,
            "reason": _STRING,
            "status": _STRING,
            "type": _STRING,
        },
        required=["status", "type"],
    )
    replica = _object(
        {
            "active": _INT32,
            "failed": _INT32,
            "labelSelector": label_selector,
            "selector": _STRING,
            "succeeded": _INT32,
        }
    )
    return _object(
        {
            "completionTime": _TIME,
            "conditions": _list(condition),
            "lastReconcileTime": _TIME,
            "replicaStatuses": _map(replica),
            "startTime": _TIME,
        }
    )


def _object(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties)}
    return {**schema, "required": list(required)} if required else schema


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}
