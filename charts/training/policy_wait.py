"""The container that holds a job's program back until network policies are in force for its pod.

The VPC CNI lets a new pod reach everything, and be reached, until it has attached the policies that
select the pod, a second or two later (decision 61). No policy lets a pod of a job reach the
metadata service, which answers on every EC2 instance: while it takes connections, none holds.
"""

from cdk8s_plus_27 import k8s

from megatron_eks.charts.pods import sizes, unprivileged_container

# EC2 User Guide, "Access instance metadata for an EC2 instance".
_METADATA = ("169.254.169.254", 80)
_SECONDS = 10.0

# The text stands here and not in the images: jobs may run on one from before it was written. What
# it leaves in the file stays with the pod's status (Kubernetes, "Determine the Reason for Pod
# Failure").
_SCRIPT = """\
import contextlib, socket, sys, time
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    try:
        socket.create_connection({metadata}, 1).close()
    except OSError:
        sys.exit()
    time.sleep(0.2)
text = "no network policy is in force for this pod after {seconds:g} s: other jobs and the node's "
text += "credentials are in reach - enable them (vpc-cni: enableNetworkPolicy)"
print(text)
with contextlib.suppress(OSError), open("/dev/termination-log", "w") as file:
    file.write(text)
"""


def script(metadata: tuple[str, int] = _METADATA, seconds: float = _SECONDS) -> str:
    """Return the program; in the end it lets the pod go on, whatever it has found."""
    return _SCRIPT.format(metadata=metadata, seconds=seconds)


def policy_wait() -> k8s.Container:
    """Return the container without its image, which is the job's own and on the node anyway."""
    return k8s.Container(
        name="wait-for-policies",
        image_pull_policy="IfNotPresent",
        command=["python3", "-c", script()],
        resources=sizes("50m", "128Mi", limit="128Mi"),
        security_context=unprivileged_container(),
    )
