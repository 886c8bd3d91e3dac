"""The wheel: what is in it, that it renders as a checkout does, and a cluster with it alone."""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from megatron_eks import RUN_APP
from megatron_eks.catalog.pins import MEGATRON_CORE_VERSION
from megatron_eks.localcloud.kubernetes import build
from megatron_eks.localcloud.kubernetes.cluster import ADMINISTRATOR
from megatron_eks.project import MANIFESTS, ROOT, TEMPLATES

pytestmark = pytest.mark.tools


def run(*words: object, cwd: Path = ROOT, env: Mapping[str, str] = os.environ) -> str:
    """Run a program to its end, and return what it says."""
    done = subprocess.run(  # noqa: S603 -- our own commands
        [*map(str, words)], cwd=cwd, env=env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(folder: Path) -> Path:
    """Build a wheel as `uv build` does, without fetching what builds it."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a folder with what a wheel puts into site-packages."""
    folder = tmp_path_factory.mktemp("site")
    ZipFile(built(tmp_path_factory.mktemp("wheel"))).extractall(folder)
    return folder


def test_it_has_the_files_of_the_checkout_by_the_names_they_get(site):
    """And no package beside megatron_eks; where a checkout has links, it has what they lead to."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard").split()
    links = [each for each in (ROOT / "megatron_eks").rglob("*") if each.is_symlink()]
    places = {each.relative_to(ROOT): each.resolve().relative_to(ROOT) for each in links}
    places[Path("megatron_eks")] = Path("megatron_eks")
    wanted = {
        link / file.relative_to(place): file
        for link, place in places.items()
        for file in map(Path, listed)
        if file.is_relative_to(place) and not (ROOT / file).is_symlink()
    }
    found = {file.relative_to(site) for file in site.rglob("*") if file.is_file()}
    assert {file for file in found if file.parts[0] == "megatron_eks"} == wanted.keys()
    assert {file.parts[0] for file in found} == {"megatron_eks", "megatron_eks-0.1.0.dist-info"}
    for name, file in wanted.items():
        assert filecmp.cmp(ROOT / file, site / name, shallow=False), name


def test_it_is_the_same_whenever_it_is_built(tmp_path):
    """Byte for byte."""
    assert filecmp.cmp(built(tmp_path / "a"), built(tmp_path / "b"), shallow=False)


def test_it_writes_what_a_checkout_writes(site, tmp_path):
    """Templates with the images' tags, and manifests, byte for byte; tests of images as well."""
    rendered = {}
    for name, root in (("installed", site), ("checkout", ROOT)):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(ROOT / "cluster.yaml", folder)
        shutil.copytree(ROOT / "jobs", folder / "jobs")
        python = [sys.executable, "-m", "megatron_eks", "synth"]
        run(*python, cwd=folder, env={**os.environ, "PYTHONPATH": str(root)})
        files = [*folder.glob(f"{TEMPLATES}/*.*.json"), *folder.glob(f"{MANIFESTS}/*/*")]
        rendered[name] = {str(file.relative_to(folder)): file.read_text() for file in files}
    assert rendered["installed"] == rendered["checkout"]
    assert {Path(each).parts[0] for each in rendered["checkout"]} == {TEMPLATES, MANIFESTS}


OWN_APP = """
from megatron_eks.stacks.app import main


def add(app, plan):
    import aws_cdk as cdk
    from aws_cdk import aws_s3 as s3

    s3.CfnBucket(cdk.Stack(app, f"{plan.name}-Own"), "Bucket")


main(add)
"""


def test_an_app_of_ones_own_adds_stacks(site, tmp_path):
    """They are written beside ours, and no guard judges them: that bucket is open."""
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    (tmp_path / "app.py").write_text(OWN_APP)
    # As the CDK's command line runs it, by the cdk.json that `meks init` writes.
    python = [sys.executable, "-m", "megatron_eks", RUN_APP]
    run(*python, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)})
    names = {file.name.partition(".")[0] for file in tmp_path.glob(f"{TEMPLATES}/*.template.json")}
    assert {"techpulse-Own", "techpulse-Network"} <= names


def test_extras_are_what_a_checkout_installs():
    """In the same versions, where one is named; what all installations have needs no extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    local, megatron = map(project["optional-dependencies"].get, ("local", "megatron"))
    # There, the version of Megatron core comes from the pins, by `make lock`.
    pinned = f"megatron-core=={MEGATRON_CORE_VERSION}; python_version >= '3.12'"
    megatron[megatron.index(pinned)] = 'megatron-core; python_version >= "3.12"'
    assert set(local) <= lines("requirements/dev.in")
    others = lines("requirements/programs.in") - set(megatron)
    # What a run is tracked with is for the images, and for the tests.
    tracking = {"mlflow", "sagemaker-mlflow", "tensorboard", "wandb==0.29.0"}
    assert others - tracking == {"PyYAML", "boto3==1.44.5", "pydantic"}


def lines(file: str) -> set[str]:
    """Return what a file asks for."""
    return {line for line in (ROOT / file).read_text().splitlines() if line[:1] not in "#-"}


@pytest.mark.long
@pytest.mark.control_plane
def test_a_cluster_lives_with_the_wheel_alone(tmp_path):
    """From `uv tool install` in an empty home to a job on the local AWS, with no checkout."""
    env = {name: value for name, value in os.environ.items() if "CERT" in name}
    env |= {"HOME": str(tmp_path), "PATH": f"{tmp_path}/.local/bin:/usr/bin:/bin"}
    folder = tmp_path / "project"
    folder.mkdir()

    def user(words: str) -> str:
        return run(*words.split(), cwd=folder, env=env)

    # All but what takes minutes: the control plane of this machine.
    build.programs(os.environ, print)
    cache = build.cache_folder(env)
    cache.mkdir(parents=True)
    (cache / "kubernetes").symlink_to(build.cache_folder(os.environ) / "kubernetes")
    uv, wheel = Path(sys.executable).with_name("uv"), built(tmp_path)
    user(f"{uv} tool install --system-certs --python {sys.executable} {wheel}[local]")
    exports = user("meks local up --empty")
    try:
        env |= dict(re.findall(r"^export (\w+)=(\S+)$", exports, re.MULTILINE))
        role = f"arn:aws:iam::000000000000:role/{ADMINISTRATOR}"
        user(f"meks init --yes --public-cidr 8.8.4.4/32 --admin-role-arn {role}")
        for words in ("validate", "plan", "synth", "cdk bootstrap"):
            user(f"meks {words}")
        user("meks cdk deploy --all --require-approval never")
        assert "fs-" in user("meks outputs")
        for words in ("deploy --yes", "build", "kubeconfig", "synth", "apply --yes"):
            user(f"meks {words}")
        user("meks submit fetch-tokenizer")
        assert "fetch-tokenizer" in user("meks status")
    finally:
        user("meks local down --yes")
