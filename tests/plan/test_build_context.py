"""An image's tag follows its build context: every change of content, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_eks.build_context import content_tag, context_files, stage
from megatron_eks.catalog.models import PRESETS
from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.plan.cluster.images import REPOSITORIES
from megatron_eks.programs import PROGRAM_OPTIONS
from megatron_eks.shipping import programs

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROOT = Path(__file__).parents[2]

CONTEXT = {
    "assets/images/megatron/Dockerfile": b"FROM a@sha256:b\n",
    "assets/images/megatron/patches/one.patch": b"+",
    "assets/images/gate.py": b"print()\n",
    "assets/codebuild/build_image.py": b"print()\n",
    "megatron_eks/__init__.py": b"",
    "megatron_eks/catalog/models.py": b"PRESETS = {}\n",
    "megatron_eks/programs/trainer/model.py": b"print()\n",
}
OTHERS = {
    "assets/images/fsdp/Dockerfile": b"FROM c\n",
    "assets/images/fsdp/gate.py": b"",
    "assets/images/notes.md": b"",
    "megatron_eks/catalog/instances.py": b"",
    "megatron_eks/catalog/prices.txt": b"p5.48xlarge 55.04\n",
    "megatron_eks/project.py": b"",
    "README.md": b"# Assets\n",
}
JUNK = (
    ".DS_Store",
    ".gitignore",
    ".train_megatron.py.swp",
    ".pytest_cache/v/lastfailed",
    "__pycache__/train_megatron.cpython-312.pyc",
    "__pycache__/deeper/file.py",
    "train_megatron.pyc",
    "train_megatron.py~",
    "#train_megatron.py#",
    "train_megatron.py.orig",
    "train_megatron.swp",
    "Thumbs.db",
)
FOLDERS = (
    "assets/images/megatron",
    "assets/images/megatron/patches",
    "assets/codebuild",
    "megatron_eks/programs",
)

paths = st.sampled_from(sorted(CONTEXT))
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


def write(root: Path, files: dict[str, bytes]) -> Path:
    """Write a checkout."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def tag(root: Path, **build_args: str) -> str:
    """Return the tag of the Megatron image."""
    return content_tag(root, "megatron", build_args)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout."""
    return write(tmp_path / "checkout", CONTEXT | OTHERS)


@settings(SLOW_DISK)
@given(order=st.permutations(sorted(CONTEXT | OTHERS)), args=st.dictionaries(names, names))
def test_equal_contexts_have_equal_tags(tmp_path_factory, order, args):
    """Neither the place, nor the order of writing, nor the times of files count."""
    files = CONTEXT | OTHERS
    first = write(tmp_path_factory.mktemp("first"), files)
    second = write(tmp_path_factory.mktemp("second"), {name: files[name] for name in order})
    for path in context_files(second, "megatron").values():
        os.utime(path, (0, 0))
    backwards = dict(reversed(args.items()))
    assert content_tag(first, "megatron", args) == content_tag(second, "megatron", backwards)


@settings(SLOW_DISK)
@given(path=paths, content=st.binary())
def test_every_byte_counts(tmp_path_factory, path, content):
    """Other content of any file is another tag."""
    root = write(tmp_path_factory.mktemp("checkout"), CONTEXT)
    before = tag(root)
    (root / path).write_bytes(content)
    assert (tag(root) == before) is (content == CONTEXT[path])


@settings(SLOW_DISK)
@given(folder=st.sampled_from(FOLDERS), name=names, content=st.binary(max_size=4))
def test_every_name_counts(tmp_path_factory, folder, name, content):
    """A file more, even an empty one, is another tag, and so is another name for it."""
    root = write(tmp_path_factory.mktemp("checkout"), CONTEXT)
    without = tag(root)
    path = root / folder / name
    path.write_bytes(content)
    added = tag(root)
    path.rename(path.with_name(f"{name}x"))
    assert len({without, added, tag(root)}) == 3


@settings(SLOW_DISK)
@given(path=paths)
def test_executable_bit_counts(tmp_path_factory, path):
    """A program that may not be run is another image; other permissions are the machine's."""
    root = write(tmp_path_factory.mktemp("checkout"), CONTEXT)
    (root / path).chmod(0o644)
    before = tag(root)
    (root / path).chmod(0o600)
    assert tag(root) == before
    (root / path).chmod(0o755)
    assert tag(root) != before


@settings(SLOW_DISK)
@given(first=st.dictionaries(names, names), second=st.dictionaries(names, names))
def test_build_arguments_count(tmp_path_factory, first, second):
    """Tags are equal exactly where the build arguments are."""
    root = write(tmp_path_factory.mktemp("checkout"), CONTEXT)
    equal = content_tag(root, "megatron", first) == content_tag(root, "megatron", second)
    assert equal is (first == second)


def test_content_cannot_move_between_files(tmp_path):
    """The same bytes with another boundary are another context."""
    first = write(
        tmp_path / "a", CONTEXT | {f"{FOLDERS[3]}/a.py": b"12", f"{FOLDERS[3]}/b.py": b"3"}
    )
    second = write(
        tmp_path / "b", CONTEXT | {f"{FOLDERS[3]}/a.py": b"1", f"{FOLDERS[3]}/b.py": b"23"}
    )
    assert tag(first) != tag(second)


def test_link_is_hashed_as_a_link(root):
    """A link to the same content elsewhere is not the file."""
    path = root / "megatron_eks" / "programs" / "trainer" / "model.py"
    before = tag(root)
    path.rename(root / "train.py")
    path.symlink_to(root / "train.py")
    link = tag(root)
    path.unlink()
    path.symlink_to(root / "elsewhere.py")
    assert len({before, link, tag(root)}) == 3


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("name", JUNK)
def test_junk_does_not_count(root, folder, name):
    """What editors, Python and desktops leave behind makes no new image."""
    before = tag(root)
    write(root / folder, {name: b"junk"})
    assert tag(root) == before


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_what_the_image_does_not_need_does_not_count(root, name):
    """Neither another image's Dockerfile nor a price makes a new image of this one."""
    before = tag(root)
    (root / name).write_bytes(b"changed")
    assert tag(root) == before


def test_each_image_has_its_own_tag():
    """Tags of the real images are twenty hexadecimal digits, and differ."""
    tags = {content_tag(ROOT, image, {}) for image in REPOSITORIES}
    assert len(tags) == len(REPOSITORIES)
    assert all(len(value) == 20 and int(value, 16) >= 0 for value in tags)


def test_unknown_image_is_an_error(root):
    """A misspelt image has no tag, rather than the tag of the programs alone."""
    with pytest.raises(FileNotFoundError, match="no Dockerfile of image 'megatorn'"):
        content_tag(root, "megatorn", {})


@pytest.mark.parametrize("image", sorted(REPOSITORIES))
def test_what_is_staged_is_what_is_hashed(image, root, tmp_path):
    """CodeBuild gets the files that the tag speaks of, and no others, here and in this checkout."""
    write(root / "megatron_eks/programs", dict.fromkeys(JUNK, b"junk"))
    for source in (root, ROOT):
        folder = tmp_path / f"staged-{source.name}"
        stage(source, image, folder)
        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert found == context_files(source, image).keys()
        assert content_tag(folder, image, {}) == content_tag(source, image, {})


def test_programs_start_from_what_images_have(tmp_path):
    """No program imports anything of ours that an image has not."""
    stage(ROOT, "megatron", tmp_path)
    for name in PROGRAM_OPTIONS:
        done = subprocess.run(  # noqa: S603 -- our own program
            [sys.executable, "-m", f"{PACKAGE}.{name}", "--help"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or "torch" in done.stderr, done.stderr


def test_programs_read_their_facts_in_a_zip(tmp_path):
    """An image of the user's gets them so, and no path leads into a zip."""
    (tmp_path / "programs.zip").write_bytes(programs(ROOT))
    reads = "from megatron_eks.catalog import job_keys, models; print(len(models.PRESETS))"
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", reads],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "programs.zip")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{len(PRESETS)}\n", done.stderr
