"""Images of the user's: what is refused of them, what their build gets, and their tag."""

import shutil
from datetime import date
from unittest.mock import Mock

import pytest
import yaml

from megatron_eks import own_images
from megatron_eks.build_context import copy
from megatron_eks.own_images import read_context
from megatron_eks.project import ROOT, check_files, load_project

TODAY = date(2026, 11, 29)
OWN = {"name": "trainer", "context": "images/trainer", "base": "fsdp", "test": "true"}
JOB = {
    "schema_version": 1,
    "kind": "torchrun",
    "name": "own",
    "pool": "p4d",
    "nodes": 2,
    "image": "trainer",
    "program": {"module": "mine.train"},
}


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a cluster file with an image of its own, and a job that runs it."""
    context = tmp_path / "images" / "trainer"
    context.mkdir(parents=True)
    (context / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY a.py /opt/\n")
    (context / "a.py").write_text("x = 1\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "own.yaml").write_text(yaml.safe_dump(JOB))
    edit(tmp_path)
    return tmp_path


def edit(folder, *images, **changes):
    """Describe the image with changes, and others."""
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    first = {key: value for key, value in {**OWN, **changes}.items() if value is not None}
    cluster["images"] = {"own": [first, *images]}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))


def found(folder):
    """Return what is said of the image and the job."""
    files = check_files(folder / "cluster.yaml", [folder / "jobs" / "own.yaml"], TODAY)
    return [
        f"{each.level} {each.code} {each.path[-1]}: {each.found}"
        for each in files.findings
        if "own" in each.path or each.file.endswith("own.yaml")
    ]


def tag(folder):
    """Return the image's tag."""
    plan = load_project(folder / "cluster.yaml", TODAY).cluster
    return next(each.tag for each in plan.images if each.name == "trainer")


def test_a_job_runs_an_image_of_the_user_s_by_its_name(folder):
    """With our programs beside it, for its own may be older, or none."""
    assert found(folder) == []
    (job,) = load_project(folder / "cluster.yaml", TODAY).jobs
    assert job.image.uri == f"preview.invalid/trainer:{tag(folder)}"
    assert job.launcher[:2] == ("python3", "/etc/megatron-eks/programs.zip")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"context": "images/other"}, "error MEKS-0349 context: no such folder"),
        ({"context": "jobs"}, "error MEKS-0349 dockerfile: no Dockerfile in jobs"),
        ({"dockerfile": "Containerfile"}, "error MEKS-0349 dockerfile: no Containerfile in"),
        ({"name": "fsdp"}, "error MEKS-0349 name: fsdp is this project's name"),
        ({"name": "megatron-training"}, "error MEKS-0349 name: megatron-training is this"),
        ({"base": "nemo"}, "error MEKS-0105 base: "),
        ({"test": None}, "error MEKS-0102 test: "),
        ({"name": "trainr"}, "error MEKS-0304 image: 'trainer' is neither an image"),
    ],
)
def test_mistakes(folder, changes, expected):
    """Each is told before anything is deployed."""
    edit(folder, **changes)
    assert any(line.startswith(expected) for line in found(folder)), found(folder)


def test_two_images_of_one_name(folder):
    """They would share a repository."""
    edit(folder, {**OWN, "base": None})
    assert found(folder) == ["error MEKS-0349 name: trainer is another one's name"]


def test_secrets_stay_here_and_a_token_is_refused(folder):
    """Everybody who can pull an image can read what is in it."""
    context = folder / "images" / "trainer"
    (context / ".env").write_text("KEY=1\n")
    (context / "id_rsa").write_text("x")
    expected = "warning MEKS-0344 context: .env (a secret), id_rsa (a secret) stay here"
    assert found(folder) == [expected]
    (context / ".dockerignore").write_text("!id_rsa\n.env\n")
    assert found(folder) == []
    (context / "a.py").write_text(f"\nTOKEN = 'hf_{'a' * 34}'\n")
    (line,) = found(folder)
    assert line.startswith("error MEKS-0253 context: a.py:2 holds a token")


NAMES = (
    "a.py",
    "b/c.py",
    "b/d.txt",
    "b/e/f.py",
    "wheels/x.whl",
    "model.bin",
    "venv/x",
    ".git/HEAD",
)


@pytest.mark.parametrize(
    ("ignored", "kept"),
    [
        ("", {"a.py", "b/c.py", "b/d.txt", "b/e/f.py", "wheels/x.whl", "model.bin"}),
        ("b\n./wheels/\n", {"a.py", "model.bin"}),
        # A name begins at the folder of the build, unlike in .gitignore.
        ("c.py\n*.bin\n", {"a.py", "b/c.py", "b/d.txt", "b/e/f.py", "wheels/x.whl"}),
        ("# all but\n*\n!b/e\n!a.py\n", {"a.py", "b/e/f.py"}),
        ("**\n!b\nb/*.txt\n", {"b/c.py", "b/e/f.py"}),
        ("**/*.py\n", {"b/d.txt", "wheels/x.whl", "model.bin"}),
    ],
)
def test_the_build_gets_what_docker_would(tmp_path, ignored, kept):
    """Patterns as docker reads them, and the Dockerfile always; junk never."""
    for name in ("Dockerfile", *NAMES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text(ignored)
    read = read_context(tmp_path, "Dockerfile", tmp_path.parent)
    assert read.files.keys() - {"Dockerfile", ".dockerignore"} == kept
    assert {"Dockerfile", ".dockerignore"} <= read.files.keys()


def test_links_within_the_folder_go_along_as_links(tmp_path):
    """One that leads out would be another file there."""
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "inside").symlink_to("Dockerfile")
    (tmp_path / "outside").symlink_to(ROOT / "app.py")
    (tmp_path / "folder").symlink_to(ROOT)
    read = read_context(tmp_path, "Dockerfile", tmp_path.parent)
    assert sorted(read.files) == ["Dockerfile", "inside"]
    assert read.left == dict.fromkeys(("folder", "outside"), "a link to elsewhere")
    copy(read.files, tmp_path / "lib")
    assert (tmp_path / "lib" / "inside").is_symlink()


def test_the_tag_is_that_of_what_is_built(folder):
    """The same files have the same tag; the test and the base are part of it, junk is not."""
    context = folder / "images" / "trainer"
    before = tag(folder)
    (context / "a.py").touch()
    (context / "__pycache__").mkdir()
    (context / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert tag(folder) == before
    seen = {before}
    for changes in ({"test": "false"}, {"base": "megatron"}, {"base": None}):
        edit(folder, **changes)
        seen.add(tag(folder))
    edit(folder)
    (context / "a.py").write_text("x = 2\n")
    seen.add(tag(folder))
    shutil.copy(context / "Dockerfile", context / "Containerfile")
    edit(folder, dockerfile="Containerfile")
    seen.add(tag(folder))
    assert len(seen) == 6


def test_a_load_reads_the_folder_once(folder, monkeypatch):
    """For what is wrong with it and for its hash; it may be large."""
    look = Mock(wraps=read_context)
    monkeypatch.setattr(own_images, "read_context", look)
    assert tag(folder)
    look.assert_called_once()


def test_what_is_rendered_beside_the_cluster_file_is_no_part_of_an_image(tmp_path):
    """Its hash would be another one after each rendering; elsewhere such a folder is the user's."""
    for name in ("Dockerfile", "cdk.out/manifest.json", "dist/a.whl", "outputs.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("FROM x\n")
    assert [*read_context(tmp_path, "Dockerfile", tmp_path).files] == ["Dockerfile"]
    assert "dist/a.whl" in read_context(tmp_path, "Dockerfile", tmp_path.parent).files
