"""The user data of nodes: nodeadm's configuration, and scripts that run before the node joins."""

import json
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart

from megatron_eks.plan.cluster.egress import Egress
from megatron_eks.plan.cluster.pools import PoolPlan

# A fixed one: the standard library's is random, and would renew the launch template at each synth.
_BOUNDARY = "megatron-eks"

# nodeadm starts containerd and the kubelet after cloud-init's scripts (awslabs/amazon-eks-ami,
# nodeadm-run.service), and Go reads the system's roots when it first needs them.
_TRUST = """\
#!/bin/bash
set -euo pipefail
cat > /etc/pki/ca-trust/source/anchors/megatron-eks.pem <<'CERTIFICATES'
{certificates}
CERTIFICATES
update-ca-trust
"""

# FSx for Lustre User Guide, "Configuring EFA clients". A node on which this fails joins all the
# same and mounts over TCP: slower, and not worth a lost node.
_LUSTRE_EFA = """\
#!/bin/bash
set -euo pipefail
dnf install -y lustre-client unzip
cd "$(mktemp -d)"
curl --fail --silent --show-error --retry 5 --remote-name \\
  https://docs.aws.amazon.com/fsx/latest/LustreGuide/samples/configure-efa-fsx-lustre-client.zip
unzip -q configure-efa-fsx-lustre-client.zip
cd configure-efa-fsx-lustre-client
./setup.sh
"""


def gpu_user_data(pool: PoolPlan, egress: Egress) -> str:
    """Return MIME text with one NodeConfig; EKS adds the cluster's part to it.

    EKS User Guide, "Customize managed nodes with launch templates", and nodeadm's API v1alpha1.
    """
    scripts = [_LUSTRE_EFA] if pool.lustre_efa else []
    spec: dict[str, dict[str, object]] = {
        # One fast volume of all NVMe disks, for container images, emptyDir and logs too.
        **(
            {"instance": {"localStorage": {"strategy": pool.local_storage}}}
            if pool.local_storage
            else {}
        ),
        "kubelet": {"config": {"maxPods": pool.max_pods}},
    }
    return _message(spec, egress, *scripts)


def system_user_data(egress: Egress) -> str | None:
    """Return the same for nodes that need no settings of their own; None where nothing is said."""
    if not egress.node_variables and egress.ca_bundle is None:
        return None
    return _message({}, egress)


def _message(spec: dict[str, dict[str, object]], egress: Egress, *scripts: str) -> str:
    if egress.node_variables:
        spec.setdefault("instance", {})["environment"] = {"default": dict(egress.node_variables)}
    message = MIMEMultipart("mixed", _BOUNDARY)
    if egress.ca_bundle is not None:
        # First, because what follows may download through a proxy with such a certificate.
        message.attach(_script(_TRUST.format(certificates=egress.ca_bundle.strip())))
    for script in scripts:
        message.attach(_script(script))
    part = MIMENonMultipart("application", "node.eks.aws")
    node_config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    # JSON is YAML, which is what nodeadm reads.
    part.set_payload(json.dumps(node_config, indent=2))
    message.attach(part)
    return message.as_string()


def _script(text: str) -> MIMENonMultipart:
    part = MIMENonMultipart("text", "x-shellscript")
    part.set_payload(text)
    return part
