"""Writes the tables in `megatron_eks/rules/shapes/` from the schemas that the linters carry.

`make generate` runs it. CloudFormation's come from AWS's registry by way of cfn-lint, Kubernetes'
from its OpenAPI description by way of kubernetes-validate, a PyTorchJob's from our own definition,
IAM's actions from AWS's list by way of cfn-lint, and how they are written, and what the registry
leaves open, from botocore.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
import cfnlint
import kubernetes_validate
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from charts.platform.crd import read_definition
from megatron_eks.entry import prepare
from megatron_eks.rules.shapes import CLOUDFORMATION, KUBERNETES, RESOURCES
from tests.upstream import api_values
from tests.upstream.checked import CHECKED

# A JSON schema or a shape made of one, which have no narrower type.
Json = Any

_VERSION = "1.35"
_SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"

TYPES = {
    "AutoScaling": ("AutoScalingGroup",),
    "Budgets": ("Budget",),
    "CloudWatch": ("Alarm",),
    "CodeBuild": ("Project",),
    "EC2": (
        *("CapacityReservation", "EIP", "FlowLog", "Instance", "InternetGateway", "LaunchTemplate"),
        *("NatGateway", "PlacementGroup", "Route", "RouteTable", "SecurityGroup"),
        *("SecurityGroupEgress", "SecurityGroupIngress", "Subnet", "SubnetRouteTableAssociation"),
        *("VPC", "VPCEndpoint", "VPCGatewayAttachment"),
    ),
    "ECR": ("Repository",),
    "EFS": ("AccessPoint", "FileSystem", "MountTarget"),
    "EKS": ("AccessEntry", "Addon", "Cluster", "Nodegroup", "PodIdentityAssociation"),
    "Events": ("Rule",),
    "FSx": ("DataRepositoryAssociation", "FileSystem"),
    "IAM": ("InstanceProfile", "ManagedPolicy", "OIDCProvider", "Policy", "Role"),
    "KMS": ("Alias", "Key"),
    "Logs": ("LogGroup",),
    "S3": ("Bucket", "BucketPolicy"),
    "SNS": ("Subscription", "Topic", "TopicPolicy"),
    "SQS": ("Queue", "QueuePolicy"),
}
# Services in policies of clusters and builds; cfn-lint has their actions from AWS's own list.
SERVICES = (
    *("autoscaling", "cloudwatch", "codebuild", "ec2", "ecr", "ecr-public", "eks", "eks-auth"),
    *("elasticfilesystem", "fsx", "iam", "kms", "logs", "s3", "secretsmanager", "sqs", "ssm"),
    "sts",
)
_POLICIES = Path("data", "AdditionalSpecs", "Policies.json")
# Services whose calls botocore has under another name, and actions that are no calls.
_MODELS = {"elasticfilesystem": "efs"}
_NO_CALLS = (
    *("AccessKubernetesApi", "BypassGovernanceRetention", "ClientMount", "ClientRootAccess"),
    *("ClientWrite", "DeleteObjectVersion", "GetBucketObjectLockConfiguration"),
    *("GetEncryptionConfiguration", "GetLifecycleConfiguration", "GetObjectVersion"),
    *("GetReplicationConfiguration", "ListAllMyBuckets", "ListBucket", "ListBucketVersions"),
    *("ListBucketMultipartUploads", "ListMultipartUploadParts", "PutEncryptionConfiguration"),
    *("PutLifecycleConfiguration", "ReEncryptFrom", "ReEncryptTo", "TagSession"),
)
KINDS = {
    "v1": (
        *("ConfigMap", "LimitRange", "Namespace", "PersistentVolume", "PersistentVolumeClaim"),
        *("Pod", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"),
    ),
    "apps/v1": ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "batch/v1": ("CronJob", "Job"),
    "admissionregistration.k8s.io/v1": (
        *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    ),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "networking.k8s.io/v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "node.k8s.io/v1": ("RuntimeClass",),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "storage.k8s.io/v1": ("CSIDriver", "StorageClass"),
}

# Needed by the schemas, but filled in by the API server (pkg/apis/rbac/v1/defaults.go), or as
# good as empty where they are not given.
_NOT_NEEDED = {"RoleRef": "apiGroup", "NetworkPolicySpec": "podSelector", "PriorityClass": "value"}

# SNS API, Subscribe, Protocol.
_PROTOCOLS = {
    "=": [
        *("application", "email", "email-json", "firehose", "http", "https", "lambda", "sms"),
        "sqs",
    ]
}
# What the registry leaves open, and the service's own API does not.
_SETTLED: dict[tuple[str, ...], Json] = {
    ("AWS::EKS::Cluster", "EncryptionConfig", "Resources!"): [{"=": ["secrets"]}],
    ("AWS::EKS::Cluster", "EncryptionConfig", "Provider!"): {"KeyArn!": "text"},
    ("AWS::CodeBuild::Project", "Triggers", "FilterGroups"): [
        [
            {
                "ExcludeMatchedPattern": "truth",
                "Pattern!": "text",
                "Type!": {
                    "=": [
                        *("ACTOR_ACCOUNT_ID", "BASE_REF", "COMMIT_MESSAGE", "EVENT", "FILE_PATH"),
                        *("HEAD_REF", "ORGANIZATION_NAME", "RELEASE_NAME", "REPOSITORY_NAME"),
                        *("TAG_NAME", "WORKFLOW_NAME"),
                    ]
                },
            }
        ]
    ],
    ("AWS::EC2::EIP", "Domain"): {"=": ["standard", "vpc"]},
    ("AWS::EKS::AccessEntry", "Type"): {
        "=": [
            *("EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX"),
            *("HYPERPOD_LINUX", "STANDARD"),
        ]
    },
    ("AWS::SNS::Subscription", "Protocol!"): _PROTOCOLS,
    ("AWS::SNS::Topic", "Subscription", "Protocol!"): _PROTOCOLS,
    ("AWS::EKS::Nodegroup", "Taints", "Key!"): "text",
    ("AWS::EKS::Nodegroup", "Taints", "Effect!"): {
        "=": ["NO_EXECUTE", "NO_SCHEDULE", "PREFER_NO_SCHEDULE"]
    },
    ("AWS::EKS::Nodegroup", "Labels"): {"*": "text"},
    ("AWS::EKS::Nodegroup", "Tags"): {"*": "text"},
}

_TYPED = {"IntOrString": "port", "Quantity": "quantity"}
_SCALARS = {"string": "text", "integer": "whole", "number": "number", "boolean": "truth"}


def cloudformation() -> dict[str, Json]:
    """Return the shape of each resource type's properties, and as `@TYPE` its attributes."""
    shapes = {}
    for service, names in TYPES.items():
        for name in names:
            kind = f"AWS::{service}::{name}"
            registered = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind)
            schema = registered.schema
            written_by_aws = set(schema.get("readOnlyProperties", ()))
            given = {
                key: each
                for key, each in schema["properties"].items()
                if f"/properties/{key}" not in written_by_aws
            }
            shape = _inlined({**schema, "properties": given}, schema.get("definitions", {}))
            shapes[kind] = api_values.settle(kind, shape)
            _settle(kind, shapes[kind])
            shapes[f"@{kind}"] = {"=": sorted(registered.get_atts)}
    return shapes


def resources() -> dict[str, Json]:
    """Return IAM's actions, the kinds of resources that each works on, and their ARNs.

    Under a service are its actions by the kinds that they take together, and under `@` and its name
    how the ARNs of each kind end; an action without any works on everything alone. IAM compares
    actions in small letters; those that AWS writes in another way are written so.
    """
    known = json.loads((Path(cfnlint.__file__).parent / _POLICIES).read_text())
    found: dict[str, Json] = {}
    for service in SERVICES:
        by_kinds: dict[str, Json] = {}
        said = _calls(service)
        for action, body in sorted(known[service]["Actions"].items()):
            kinds = " ".join(sorted(body.get("Resources", [])))
            by_kinds.setdefault(kinds, []).append(said.get(action, action))
        found[service] = dict(sorted(by_kinds.items()))
        found[f"@{service}"] = {
            kind: sorted({_ending(each) for each in body.get("ARNFormats", [])})
            for kind, body in sorted(known[service].get("Resources", {}).items())
        }
    return found


def _calls(service: str) -> dict[str, str]:
    """Return the actions of a service as AWS writes them, by their small letters."""
    model = botocore.session.get_session().get_service_model(_MODELS.get(service, service))
    return {name.lower(): name for name in (*model.operation_names, *_NO_CALLS)}


def _ending(arn: str) -> str:
    """Return the service and the resource of an ARN, with `*` for what may be anything."""
    _, _, service, _, _, resource = re.sub(r"\$\{[^}]*\}|\.\*", "*", arn).split(":", 5)
    return f"{service}:{resource}"


def _settle(kind: str, shape: Json) -> None:
    for (name, *keys, last), settled in _SETTLED.items():
        if name == kind:
            part = shape
            for key in keys:
                part = part[key][0] if isinstance(part[key], list) else part[key]
            known = {name.removesuffix("!") for name in part}
            assert last.removesuffix("!") in known, (kind, last, known)
            part.pop(last.removesuffix("!"), None)
            part[last] = settled


def _inlined(schema: Json, definitions: Mapping[str, Json], inside: tuple[str, ...] = ()) -> Json:
    """Return the shape of a schema; definitions within themselves are left open."""
    reference = schema.get("$ref", "").rpartition("/")[2]
    if reference in inside:
        return "any"
    if reference:
        return _inlined(definitions[reference], definitions, (*inside, reference))
    return _shape(schema, lambda each: _inlined(each, definitions, inside))


def kubernetes() -> dict[str, Json]:
    """Return the shape of each kind as `VERSION KIND`, and of the parts that they share."""
    folder = _SCHEMAS / f"v{_VERSION}.0-local"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    shapes: dict[str, Json] = {}

    def named(schema: Json) -> Json:
        reference = schema.get("$ref", "").rpartition("/")[2]
        if not reference:
            return _shape(schema, named)
        name = reference.rpartition(".")[2]
        if name in _TYPED:
            return _TYPED[name]
        if _scalar(definitions[reference]):
            return _shape(definitions[reference], named)
        if f"#{name}" not in shapes:
            shapes[f"#{name}"] = None  # parts within themselves end here
            shapes[f"#{name}"] = _without(name, _shape(definitions[reference], named))
        return f"#{name}"

    for version, kinds in KINDS.items():
        for kind in kinds:
            group = version.rpartition("/")[0].split(".")[0]
            parts = [kind.lower(), *([group] if group else []), version.rpartition("/")[2]]
            schema = json.loads((folder / f"{'-'.join(parts)}.json").read_text())
            shapes[f"{version} {kind}"] = _without(kind, _shape(schema, named))
    job = read_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for (name, key), checked in CHECKED.items():
        part = shapes[f"#{name}"] if f"#{name}" in shapes else shapes[name]
        old = next(each for each in part if each.removesuffix("!") == key.removesuffix("!"))
        part[key] = checked or part[old]
        if old != key:
            del part[old]
    shapes["kubeflow.org/v1 PyTorchJob"] = _of_definition(job)
    return shapes


def _without(name: str, shape: Json) -> Json:
    """Return a shape whose key is not needed, if it is listed so."""
    key = _NOT_NEEDED.get(name)
    return {each.replace(f"{key}!", f"{key}"): inner for each, inner in shape.items()}


def _of_definition(schema: Json) -> Json:
    """Return a custom resource's shape, with the pods of the cluster's version in it."""
    properties = schema.get("properties", {})
    if "containers" in properties.get("spec", {}).get("properties", {}):
        return "#PodTemplateSpec"
    shape = _shape(schema, _of_definition)
    if {"replicas", "restartPolicy", "template"} <= {*properties}:
        # pytorchjob_webhook.go refuses a replica type without containers.
        return {("template!" if key == "template" else key): each for key, each in shape.items()}
    return shape | {"metadata": "#ObjectMeta"} if "metadata" in properties else shape


def _scalar(schema: Json) -> bool:
    return not schema.get("properties") and "additionalProperties" not in schema


def _shape(schema: Json, inner: Any) -> Json:
    """Return what a schema demands; what it says in words or by patterns is left out."""
    given = schema.get("type", [])
    types = {given} if isinstance(given, str) else set(given)
    types -= {"null"}
    if "properties" in schema and schema["properties"] and types <= {"object"}:
        needed = set(schema.get("required", ()))
        return {
            f"{key}!" if key in needed else key: inner(each)
            for key, each in sorted(schema["properties"].items())
        }
    if len(types) != 1:
        return "any"
    (kind,) = types
    if kind == "array":
        return [inner(schema.get("items", {}))]
    if kind == "object":
        values = schema.get("additionalProperties", next(iter(_patterns(schema)), {}))
        return {"*": inner(values)} if isinstance(values, dict) else "any"
    if kind in {"string", "integer"} and "enum" in schema:
        return {"=": sorted(schema["enum"])}
    bounds = [schema.get("minimum", "-"), schema.get("maximum", "-")]
    return " ".join(map(str, [_SCALARS[kind], *(bounds if set(bounds) != {"-"} else [])]))


def _patterns(schema: Json) -> list[Json]:
    return list(schema.get("patternProperties", {}).values())


def written(shapes: Mapping[str, Json]) -> str:
    """Write a table, one shape on a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(shapes[name])}" for name in sorted(shapes))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    prepare()
    CLOUDFORMATION.write_text(written(cloudformation()), encoding="utf-8")
    KUBERNETES.write_text(written(kubernetes()), encoding="utf-8")
    RESOURCES.write_text(written(resources()), encoding="utf-8")
