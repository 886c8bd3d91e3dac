"""The user data of a GPU node: nodeadm's configuration in the envelope that EKS merges."""

import json
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart

# A fixed one: the standard library's is random, and would renew the launch template at each synth.
_BOUNDARY = "megatron-eks"


def gpu_user_data(max_pods: int, local_storage: str | None) -> str:
    """Return MIME text with one NodeConfig; EKS adds the cluster's part to it.

    EKS User Guide, "Customize managed nodes with launch templates", and nodeadm's API v1alpha1.
    """
    # One fast volume of all NVMe disks, for container images, emptyDir and logs too.
    instance = {"instance": {"localStorage": {"strategy": local_storage}}} if local_storage else {}
    node_config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {**instance, "kubelet": {"config": {"maxPods": max_pods}}},
    }
    part = MIMENonMultipart("application", "node.eks.aws")
    # JSON is YAML, which is what nodeadm reads.
    part.set_payload(json.dumps(node_config, indent=2))
    message = MIMEMultipart("mixed", _BOUNDARY)
    message.attach(part)
    return message.as_string()
