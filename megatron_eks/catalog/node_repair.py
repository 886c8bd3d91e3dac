"""Faults of GPUs after which no program goes on, and what brings the node back.

The codes are those of which the EKS node monitoring agent makes a condition
(aws/eks-node-monitoring-agent, monitors/nvidia/dcgm, WellKnownXidCodes, 1.6.5 and later); the
actions are those of the EKS User Guide, "Detect node health issues", and where it has none, what
the agent's source says of the code: a reset of the GPU is a reboot, all else another node. Xid 63
is left out: after it a program goes on. Read 2026-11.
"""

from typing import Literal

CONDITION = "AcceleratedHardwareReady"

_REBOOT = (46, 48, 62, 64, 95, 109, 110, 136, 143, 155, 156, 158)
_REPLACE = (54, 74, 79, 119, 120, 140, 142, 151)

FATAL_REASONS: dict[str, Literal["Reboot", "Replace"]] = {
    "NvidiaDeviceCountMismatch": "Replace",
    "NvidiaDoubleBitError": "Replace",
    "NvidiaNVLinkError": "Replace",
    **{f"NvidiaXID{code}Error": "Reboot" for code in _REBOOT},
    **{f"NvidiaXID{code}Error": "Replace" for code in _REPLACE},
}

LOST_NODE_SECONDS = {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 10}
"""How long a job's pod stays on a lost node, by the taint that such a node gets.

A kubelet that says itself that it is not ready may only be starting anew. Of one that is not heard
of at all the control plane has waited 50 s (kube-controller-manager's --node-monitor-grace-period
since Kubernetes 1.32, which EKS lets nobody change), so what is left is one heartbeat more.
"""
