"""`meks outputs`: what AWS chose, written to outputs.json beside the cluster file."""

import json
from collections.abc import Mapping
from pathlib import Path

from botocore.client import BaseClient

from megatron_eks.config.codes import Code
from megatron_eks.config.outputs import is_digest
from megatron_eks.folders import refuse_folder_of_another
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster.build_records import Records, digest_of, is_there
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.ops.output import formatted, replace_file, table
from megatron_eks.plan.cost import still_billed
from megatron_eks.project import OUTPUTS, shown, synth_command

Values = dict[str, dict[str, str]]
"""Stack to key to value, as `cdk deploy --outputs-file` has them."""

_IMAGE = "Image"
# What the CDK hands from stack to stack is nobody else's business.
_BETWEEN_STACKS = "ExportsOutput"


def run(output: str, tools: Tools) -> int:
    """Write the outputs of all stacks that exist; raise Failure where none does."""
    path = record(tools)
    values = read(path)
    rows = [row for outputs in values.values() for row in outputs.items()]
    lines = table(("OUTPUT", "VALUE"), rows)
    tools.console.write(
        formatted(output, lines, lambda: {name: {**each} for name, each in values.items()})
    )
    tools.console.say(f"wrote {path}")
    return 0


def record(tools: Tools, pushed: Mapping[str, str] | None = None) -> Path:
    """Ask CloudFormation for all outputs and CodeBuild for digests; write them; return the file.

    `pushed` are images by `REPOSITORY:TAG` that this command has built and pushed itself.
    """
    plan = tools.plan
    refuse_folder_of_another(tools.project)
    path = tools.cluster_file.with_name(OUTPUTS)
    before = read(path)
    stacks, watch = tools.stacks, plan.stack("Observability")
    found = {
        plan.stack(part): stack.outputs
        for part in dict.fromkeys((*plan.stacks, "Observability"))  # which may be off by now
        if (stack := stacks.find(plan.stack(part))) is not None and stack.made
    }
    if not found:
        missing = f"{plan.name} has no stack in {plan.region}"
        raise Failure(Code.NOT_DEPLOYED, missing, "run: meks deploy", exit_code=NOT_FOUND)
    left = still_billed(plan, found.get(watch, {}))
    tools.console.report(each.at(shown(path), 1) for each in left)
    ecr = tools.aws.client("ecr")
    values: Values = {}
    for name, outputs in found.items():
        values[name] = {}
        known = {**recorded(outputs, tools), **(pushed or {})}
        for key, value in outputs.items():
            if key.startswith(_BETWEEN_STACKS):
                continue
            if key.endswith(_IMAGE) and value not in known:
                earlier = before.get(name, {}).get(key, "")
                known[value] = _pinned(value, earlier, ecr, tools)
            values[name][key] = known.get(value, value)
    replace_file(path, json.dumps(values, indent=2) + "\n", "then run: meks outputs")
    return path


def next_step(tools: Tools) -> str:
    """Say what comes after the file was written."""
    images = [
        value
        for outputs in read(tools.cluster_file.with_name(OUTPUTS)).values()
        for key, value in outputs.items()
        if key.endswith(_IMAGE)
    ]
    built = all(is_digest(image) for image in images)
    return f"{synth_command(tools.cluster_file)}, then meks apply" if built else "meks build"


def read(path: Path) -> Values:
    """Return what the file holds, which its cluster file's checks have read before."""
    if not path.exists():
        return {}
    values: Values = json.loads(path.read_text(encoding="utf-8"))
    return values


def has(tools: Tools, value: str) -> bool:
    """Tell whether the file has a value."""
    stacks = read(tools.cluster_file.with_name(OUTPUTS)).values()
    return any(value in outputs.values() for outputs in stacks)


def recorded(values: Mapping[str, str], tools: Tools) -> dict[str, str]:
    """Return `REPOSITORY@sha256:...` for `REPOSITORY:TAG` of the images that builds recorded."""
    found: dict[str, str] = {}
    for image in tools.plan.images:
        uri, project = (values.get(key) for key in image.keys)
        if uri and project and not is_digest(uri):
            digest = Records(tools).find(image, values).digest
            found |= {uri: f"{uri.rpartition(':')[0]}@{digest}"} if digest else {}
    return found


def _pinned(image: str, earlier: str, ecr: BaseClient, tools: Tools) -> str:
    """Keep the digest of an image that no build recorded, where the file has one; say so."""
    repository, _, tag = image.rpartition(":")
    name = repository.rpartition("/")[2]
    tagged = digest_of(repository, {"imageTag": tag}, ecr)
    ours = is_digest(earlier) and earlier.startswith(f"{repository}@")
    # A repository that was deleted and made again has lost it: nobody could pull it.
    if ours and is_there(repository, known := earlier.partition("@")[2], ecr):
        if tagged != known:
            tools.console.say(f"note: {name}:{tag} is not built, so jobs keep the image before it")
        return earlier
    state = "is not built yet" if tagged is None else "is in ECR, and no build recorded it"
    tools.console.say(f"note: {name}:{tag} {state} - run: meks build")
    return image
