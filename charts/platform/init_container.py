"""The container that holds a worker back until the master's name resolves.

The training operator adds it to every worker pod. Its own built-in one is refused by a namespace
that enforces Pod Security `restricted`, and gives up after 200 s, less than a large image needs.
"""

from typing import Any

import yaml
from cdk8s_plus_27 import k8s

from megatron_eks.charts.pods import quantity

# Two hours, because the master's name resolves once its image is pulled, and images have 20 GB. A
# container that gives up restarts, and each restart counts against the job's backoff limit.
MAX_TRIES = 3600
_SECONDS_BETWEEN_TRIES = 2

# The full name, with its final dot: nslookup of busybox 1.29 and later also tries every search
# domain for a short name and fails when one of them does (docker-library/busybox#48).
# A shell that is process 1 ignores SIGTERM unless it traps it, and would delay a deletion by 30 s.
_SCRIPT = f"""\
trap 'exit 143' TERM
name="$MASTER.$POD_NAMESPACE.svc.cluster.local."
echo "waiting for $name"
tries=0
until nslookup -type=a "$name" >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ "$tries" -ge "$TRIES" ]; then
    echo "$name does not resolve: the master pod is not running" >&2
    exit 1
  fi
  sleep {_SECONDS_BETWEEN_TRIES}
done
"""


def init_container_template(user: int | None) -> str:
    """Return the operator's template: YAML of a list of containers, with three Go variables.

    Without a user it is the pod's, which is another for each team.
    """
    container = k8s.Container(
        name="init-pytorch",
        image="{{.InitContainerImage}}",
        image_pull_policy="IfNotPresent",
        command=["sh", "-c", _SCRIPT],
        env=[
            k8s.EnvVar(name="MASTER", value="{{.MasterAddr}}"),
            k8s.EnvVar(name="TRIES", value="{{.MaxTries}}"),
            k8s.EnvVar(
                name="POD_NAMESPACE",
                value_from=k8s.EnvVarSource(
                    field_ref=k8s.ObjectFieldSelector(field_path="metadata.namespace")
                ),
            ),
        ],
        resources=k8s.ResourceRequirements(
            requests={"cpu": quantity("50m"), "memory": quantity("16Mi")},
            limits={"cpu": quantity("100m"), "memory": quantity("32Mi")},
        ),
        security_context=k8s.SecurityContext(
            run_as_non_root=True,
            run_as_user=user,
            run_as_group=user,
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=k8s.Capabilities(drop=["ALL"]),
            seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
        ),
    )
    pod: dict[str, Any] = k8s.KubePod.manifest(spec=k8s.PodSpec(containers=[container]))
    # Wide enough that no line is folded, because a person reads it in `kubectl describe`.
    return yaml.safe_dump(pod["spec"]["containers"], width=1000)
