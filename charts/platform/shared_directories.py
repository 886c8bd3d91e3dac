"""The Job that makes the directories of the pods' user on the shared file system."""

import hashlib
import json

from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.charts.pods import sizes, unprivileged_container
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.platform import PlatformPlan

_NAME = "shared-directories"
_VOLUME = "shared"
_MODE = "0770"
_REFUSED = 4
"""The exit code of a start that another one will not change: people must look."""

# Busybox sh, as root, on a file system in which others may rename things and plant links while it
# runs. So it changes nothing by a name: it goes into a directory, sees that this is the place that
# it meant and what is there, and gives away where it stands. What it has made itself it knows by
# the mode 300, which nothing else of root's has; so a start that was cut off is taken up again.
# Nothing is made unless everything that exists can stay as it is.
_SCRIPT = r"""
owner=$1 mode=$2; shift 2
pods=${owner%:*} refused=
umask 0477
enter() { cd "$1" 2>/dev/null && [ "$(pwd -P)" = "$1" ]; }
give() { [ "$pass" = look ] || { chown "$owner" . && chmod "$mode" .; }; }
refuse() { echo "$1"; refused=yes; } >&2
case $1 in
  take) else="or move it away" ;;
  *) else="or set storage.lustre.existing.path to a folder of yours" ;;
esac
for pass in look make; do
  for each; do
    case $each in take | pass | make) rule=$each; continue ;; esac
    if [ ! -e "$each" ] && [ ! -L "$each" ]; then
      [ "$pass" = make ] || continue
      ! enter "${each%/*}" || mkdir "./${each##*/}"
    fi
    if ! enter "$each"; then
      what="is not a directory"
      [ ! -d "$each" ] || what="is reached by a link"
      [ ! -L "$each" ] || what="is a link"
      refuse "$each $what, and stays as it is: put a directory there, $else"
      continue
    fi
    case "$rule $(stat -c '%u %a' .)" in
      *" 0 300" | *" 0 2300" | *" $pods 300" | *" $pods 2300" | "take 0 "*) give ;;
      *" $pods "* | pass*) ;;
      *)
        found=$(stat -c '%u:%g with mode %a' .)
        refuse "$each belongs to $found, and stays so: chown $owner $each if it is yours, $else"
        ;;
    esac
  done
  [ -z "$refused" ] || exit 4
done
"""


# Of teams each has an owner of its own, and what is above them is held by root.
_OF_TEAMS = {
    "owner=$1 mode=$2; shift 2\npods=${owner%:*} refused=\n": "refused=\n",
    "case $1 in\n  take)": 'case "$*" in\n  *" take /"*)',
    "    case $each in take | pass | make) rule=$each; continue ;; esac\n": """\
    case $each in
      take | pass | make | hold) rule=$each; continue ;;
      *:*) owner=$each pods=${owner%:*} group=${owner#*:}; continue ;;
      [0-9]*) mode=$each; continue ;;
    esac
""",
    '"take 0 "*) give ;;': '"take 0 "* | "hold 0 "* | "hold $group "*) give ;;',
}


def _script(*, teams: bool) -> str:
    script = _SCRIPT
    for plain, of_teams in _OF_TEAMS.items() if teams else ():
        script = script.replace(plain, of_teams)
    return script


def set_up_job(
    scope: Construct, construct_id: str, *, plan: ClusterPlan, claim: str, file_system: str
) -> None:
    """Make the directories that pods rely on, once for each file system and each plan of them.

    The template of a Job cannot change, so the name carries a hash of it, and of the file system:
    a new one needs the directories too. There is no time to live, because a Job that is gone would
    run again with every `kubectl apply`.
    """
    spec = _spec(plan.platform, claim)
    content = json.dumps([k8s.KubeJob.manifest(spec=spec), file_system], sort_keys=True)
    name = f"{_NAME}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    namespace = plan.platform.system_namespace
    k8s.KubeJob(
        scope,
        construct_id,
        metadata=k8s.ObjectMeta(name=name, namespace=namespace, labels={"app": _NAME}),
        spec=spec,
    )


def _spec(platform: PlatformPlan, claim_name: str) -> k8s.JobSpec:
    wanted = platform.shared_directories
    rules = {"take": wanted.taken, "pass": wanted.passed, "make": wanted.made}
    owner = f"{platform.pod_uid}:{platform.pod_uid}"
    args = [owner, _MODE, *(w for rule, paths in rules.items() if paths for w in (rule, *paths))]
    of_teams = [word for each in wanted.sections for word in each]
    container = k8s.Container(
        name=_NAME,
        image=platform.egress.image(pins.BUSYBOX_IMAGE),
        image_pull_policy="IfNotPresent",
        command=["sh", "-euc", _script(teams=bool(of_teams)).strip(), _NAME],
        args=of_teams or args,
        resources=sizes("50m", "32Mi", limit="64Mi"),
        # Giving files away takes CHOWN; on a second run the directories are another user's.
        security_context=unprivileged_container("CHOWN", "DAC_OVERRIDE", "FOWNER"),
        # Why it refused is read from the pod's state: `meks apply` and `meks status` show it.
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=[k8s.VolumeMount(name=_VOLUME, mount_path=platform.mount_path)],
    )
    claim = k8s.PersistentVolumeClaimVolumeSource(claim_name=claim_name)
    pod = k8s.PodSpec(
        # No toleration: it runs on the system nodes, before there is a GPU node.
        containers=[container],
        volumes=[k8s.Volume(name=_VOLUME, persistent_volume_claim=claim)],
        security_context=k8s.PodSecurityContext(
            run_as_user=0, seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault")
        ),
        restart_policy="Never",
        automount_service_account_token=False,
        enable_service_links=False,
    )
    codes = k8s.PodFailurePolicyOnExitCodesRequirement(
        container_name=_NAME, operator="In", values=[_REFUSED]
    )
    rule = k8s.PodFailurePolicyRule(action="FailJob", on_exit_codes=codes, on_pod_conditions=[])
    return k8s.JobSpec(
        backoff_limit=6,
        pod_failure_policy=k8s.PodFailurePolicy(rules=[rule]),
        template=k8s.PodTemplateSpec(metadata=k8s.ObjectMeta(labels={"app": _NAME}), spec=pod),
    )
