"""What the demo does, in order, and what it says on the way."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.demo import corpus, curve, jobs
from megatron_eks.demo.place import REGION, DemoError, Place
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.localcloud.kubernetes.state import shared_files
from megatron_eks.project import ROOT

_PYTHON = ROOT / ".venv-programs" / "bin" / "python"
_TRACKER = "latest_checkpointed_iteration.txt"
_NAME, _ROLE = "techpulse", "Admin"
REPORT = ROOT / "dist" / "demo-report.html"
"""The page of `meks report` on Megatron's run."""

# Two slow cores may have a dozen interpreters to start that all import torch.
_SECONDS, _RESUME_SECONDS = 300, 240
# Between two questions to the API server, which has other work.
_ASK_SECONDS, _END_SECONDS = 0.3, 10

Say = Callable[[str], None]
_Found = TypeVar("_Found")


class Story:
    """The steps of one demo; each leaves what the next one needs."""

    def __init__(self, place: Place, say: Say) -> None:
        self.place, self._say = place, say
        self.losses: list[curve.Losses] = []

    def open_account(self) -> None:
        """Write the cluster's files and start AWS and Kubernetes for it."""
        folder = self.place.folder
        if shared := shared_files(folder):
            self._say(f"deleting the /shared of a demo that ended early: {shared}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        jobs.write_project(self.place.cluster_file)
        cluster = str(self.place.cluster_file)
        assembly = folder / "cdk.out"
        # Without the validation by CDK: the local AWS judges every template that is deployed.
        templates = self.place.begin(
            sys.executable,
            "app.py",
            CDK_OUTDIR=str(assembly),
            CLUSTER_CONFIG=cluster,
            CDK_VALIDATION="false",
        )
        self.place.start()
        # The cluster reads the operator's part of it before anything is deployed.
        output = str(folder / "written")
        self.place.run(sys.executable, "-m", "charts", CDK8S_OUTDIR=output, CLUSTER_CONFIG=cluster)
        Path(output).rename(folder / "manifests")
        self._write_corpus()
        self.place.wait_for_aws()
        # Where no cdk.json names an app it makes no templates, which are being made already.
        account = f"aws://{self.place.aws.account}/{REGION}"
        self._bootstrap = self.place.begin("cdk", "bootstrap", account, folder=folder)
        self.place.finish(templates)
        self.place.aws.client("iam", REGION).create_role(
            RoleName=_ROLE, AssumeRolePolicyDocument="{}"
        )
        s3 = self.place.aws.client("s3", REGION)
        s3.create_bucket(
            Bucket=jobs.BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        self._say("AWS answers CloudFormation, EKS, EC2, FSx, S3, IAM, CodeBuild and more,")
        self._say("and behind its EKS start etcd, the API server, scheduler and operator")

    def _write_corpus(self) -> None:
        data, tokenizer = self.place.folder / "data", self.place.folder / "tokenizer"
        data.mkdir()
        self._documents = corpus.write_documents(ROOT, data / "documents.jsonl")
        corpus.write_tokenizer(tokenizer)
        words = ("--input", data / "documents.jsonl", "--output-prefix", data / "documents")
        more = ("--tokenizer", tokenizer, "--append-eod")
        self._prepare = self.place.begin(_PYTHON, "-m", f"{PACKAGE}.prepare_data", *words, *more)

    def deploy(self) -> None:
        """Deploy all stacks with the cdk command line."""
        place = self.place
        place.finish(self._bootstrap)
        outputs = place.folder / "outputs.json"
        # One stack's work here goes on beside another's in AWS.
        more = ("--all", "--concurrency=4", "--require-approval=never", "--outputs-file", outputs)
        # Synthesised while AWS started.
        place.run("cdk", "deploy", *more, "--app", place.folder / "cdk.out")
        cloud = place.aws.client("cloudformation", REGION)
        stacks = [each["StackName"] for each in cloud.describe_stacks()["Stacks"]]
        stacks = sorted(each for each in stacks if each.startswith(f"{_NAME}-"))
        resources = sum(
            len(cloud.describe_stack_resources(StackName=each)["StackResources"]) for each in stacks
        )
        names = ", ".join(each.removeprefix(f"{_NAME}-") for each in stacks)
        self._say(f"{len(stacks)} stacks with {resources} resources: {names}")

    def install(self) -> None:
        """Take nodes, build the images, render the manifests and apply the platform."""
        place = self.place
        place.wait()
        building = place.begin("meks", "build")
        place.run("meks", "kubeconfig")
        # EC2's part goes on beside the rest, as it would on AWS.
        scaling = place.begin("meks", "scale", "p4d", "2", "--yes")
        place.finish(building)
        place.run("cdk8s", "synth", "--check-upgrade=false", "--output", place.folder / "dist")
        applying = place.begin("meks", "apply", "--yes", folder=place.folder)
        place.finish(scaling)
        nodes = place.client.list("v1", "Node", labels="megatron-eks/pool=p4d")
        place.finish(applying)
        gpus = sum(int(each["status"]["allocatable"]["nvidia.com/gpu"]) for each in nodes)
        self._say(
            f"{len(nodes)} p4d nodes with {gpus} GPUs on paper; their pods are processes here"
        )

    def bring_data(self) -> None:
        """Put corpus and tokenizer where pods find them."""
        told = json.loads(self.place.finish(self._prepare).splitlines()[-1])
        shared = self.place.shared()
        for name, target in (("data", jobs.DATA), ("tokenizer", jobs.TOKENIZER)):
            inside = shared / Path(target).relative_to(jobs.SHARED)
            shutil.copytree(self.place.folder / name, inside, dirs_exist_ok=True)
        self._say(f"{self._documents} paragraphs of this project's own documents,")
        self._say(f"{told['tokens']} tokens of one byte each, by prepare_data")

    def train(self) -> None:
        """Start both jobs, and lose a rank of Megatron's in mid-run."""
        self._megatron, self._fsdp = self._submit(jobs.MEGATRON), self._submit(jobs.FSDP)
        worker = f"{jobs.MEGATRON}-worker-0"
        rank, *others = self._stop_between_saves(worker)
        newest, before = self._saved(), self._starts()
        killed, reached = time.monotonic(), max(before[-1])
        _signal((rank, *others), signal.SIGKILL)
        self._say(f"checkpoint of iteration {newest} is saved, iteration {reached} is done")
        self._say(f"kill -9 {rank}, the rank in pod {worker}")
        after = self.while_running(
            self._megatron,
            "the gang's restart",
            lambda: self._starts()[len(before) :],
            _RESUME_SECONDS,
        )
        seconds, first = time.monotonic() - killed, min(after[0])
        pods = self.place.pods(self._megatron)
        restarts = [each["status"]["containerStatuses"][0]["restartCount"] for each in pods]
        self._say(f"the other rank was ended too: restarts of the pods {restarts}")
        self._say(f"{seconds:.0f} s after the kill both step again, from iteration {first}")
        for job in (self._megatron, self._fsdp):
            self._wait_for_success(job)
        self._report = self.place.begin("meks", "report", jobs.MEGATRON, "-o", REPORT)
        # A gang that starts anew by itself, on a slow machine, is no part of the story.
        self.losses = self._starts()[-2:]

    def show(self) -> None:
        """Compare what was computed twice."""
        before, after = self.losses
        twice = curve.compare(before, after)
        off = f"by at most {twice.difference:.0e}" if twice.difference else "in no digit"
        self._say(f"{twice.iterations} iterations were computed twice: the losses differ {off}")
        rows = (self._folder("checkpoints", jobs.FSDP) / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(row) for row in rows if '"loss"' in row]
        first, last = (each["loss"] for each in (steps[0], steps[-1]))
        self._say(f"FSDP: {len(steps)} steps, loss {first:.2f} to {last:.2f}")

    def check_copies(self) -> None:
        """Send what was saved last, and let S3 say what it has."""
        self._sync("push")
        self._sync("verify")
        self._say("the newest ones are there, their checksums compared")
        self.place.finish(self._report)

    def clean_up(self) -> None:
        """Delete everything that was deployed."""
        words = ("--yes", "--delete-storage", "--delete-images", "--confirm", _NAME)
        self.place.run("meks", "cleanup", *words)
        cloud = self.place.aws.client("cloudformation", REGION)
        left = [each["StackName"] for each in cloud.describe_stacks()["Stacks"]]
        if left != ["CDKToolkit"]:
            raise DemoError(f"stacks are left: {', '.join(left)}")
        self._say("no stack is left but CDK's own, which is for all projects of an account")

    def while_running(
        self, job: Object, what: str, condition: Callable[[], _Found | None], seconds: float
    ) -> _Found:
        """Wait for something that a job does; raise DemoError once it has ended."""
        asked = time.monotonic()

        def found() -> _Found | None:
            nonlocal asked
            done = condition()
            # The API server of a busy machine takes seconds to answer, and steps go on meanwhile.
            if not done and time.monotonic() - asked > _END_SECONDS:
                if end := self._end(job):
                    raise DemoError(f"{job['metadata']['name']} ended ({end}) before {what}")
                asked = time.monotonic()
            return done

        return wait_for(what, found, seconds)

    def _sync(self, verb: str) -> None:
        """Run checkpoint_sync for both jobs at once."""
        sync = (_PYTHON, "-m", f"{PACKAGE}.checkpoint_sync", verb)
        begun = [
            self.place.begin(*sync, self._folder("checkpoints", name), f"s3://{jobs.BUCKET}/{name}")
            for name in (jobs.MEGATRON, jobs.FSDP)
        ]
        for command in begun:
            self.place.finish(command)

    def _submit(self, name: str) -> Object:
        """Apply what the job file became, changed for CPUs."""
        (file,) = (self.place.folder / "dist" / "jobs").glob(f"{name}.*")
        for manifest in read_file(file):
            if manifest["kind"] == "PyTorchJob":
                jobs.on_cpus(manifest)
            found = self.place.client.apply(manifest)
        return found

    def _stop_between_saves(self, pod: str) -> list[int]:
        """Stop a pod's rank some steps after a checkpoint; return it and its data's loaders."""
        found, program = list[int](), f"{PACKAGE}.train_megatron"

        def between() -> bool:
            newest, starts = self._saved(), self._starts()
            # Known when they are wanted: to look through all processes takes seconds, too.
            found.extend(self.place.ranks(pod, program) if starts and not found else ())
            steps = max(starts[-1]) - newest if newest and starts else 0
            return 2 <= steps < jobs.INTERVAL  # noqa: PLR2004 -- steps

        def stopped() -> list[int]:
            if not between():
                return []
            # Looked at once more where it stands: it might have saved again meanwhile, and have
            # computed nothing since that is computed twice.
            _signal(found, signal.SIGSTOP)
            if between():
                return found
            _signal(found, signal.SIGCONT)
            return []

        return self.while_running(
            self._megatron, "some iterations after a checkpoint", stopped, _SECONDS
        )

    def _wait_for_success(self, job: Object) -> None:
        name = job["metadata"]["name"]
        found = wait_for(f"the end of {name}", lambda: self._end(job), _SECONDS, pause=_ASK_SECONDS)
        if found != "Succeeded":
            raise DemoError(f"{name} failed - see {self._folder('logs', name)}")

    def _end(self, job: Object) -> str | None:
        """Return how a job ended, if it has."""
        metadata = job["metadata"]
        place = (job["apiVersion"], job["kind"], metadata["name"], metadata["namespace"])
        conditions = self.place.client.get(*place).get("status", {}).get("conditions", ())
        found = [each["type"] for each in conditions if each["status"] == "True"]
        return next((each for each in found if each in {"Succeeded", "Failed"}), None)

    def _starts(self) -> list[curve.Losses]:
        # The last rank prints them, as it does on GPUs.
        logs = sorted(self._folder("logs", jobs.MEGATRON).glob("*/rank-00001*.log"))
        return curve.starts("".join(log.read_text(errors="replace") for log in logs))

    def _saved(self) -> int:
        tracker = self._folder("checkpoints", jobs.MEGATRON) / _TRACKER
        # Megatron empties the file before it writes it anew.
        return int(tracker.read_text() or 0) if tracker.exists() else 0

    def _folder(self, kind: str, job: str) -> Path:
        return self.place.shared() / kind / job


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
