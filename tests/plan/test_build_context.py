"""An image's tag follows its build context: every change of content, and nothing else."""

import os
from pathlib import Path

import aws_cdk as cdk
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_eks.build_context import asset_excludes, content_tag, context_files
from megatron_eks.plan.cluster.images import REPOSITORIES

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ASSETS = Path(__file__).parents[2] / "assets"

CONTEXT = {
    "images/megatron/Dockerfile": b"FROM a@sha256:b\n",
    "images/megatron/patches/one.patch": b"+",
    "images/gate.py": b"print()\n",
    "programs/train_megatron.py": b"print()\n",
    "codebuild/build_image.py": b"print()\n",
}
OTHERS = {
    "images/fsdp/Dockerfile": b"FROM c\n",
    "images/fsdp/gate.py": b"",
    "images/notes.md": b"",
    "dashboards/gpu.json": b"{}",
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
FOLDERS = ("images/megatron", "images/megatron/patches", "programs", "codebuild")

paths = st.sampled_from(sorted(CONTEXT))
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


def write(root: Path, files: dict[str, bytes]) -> Path:
    """Write a folder of assets."""
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
    """Return a folder of assets."""
    return write(tmp_path / "assets", CONTEXT | OTHERS)


@settings(SLOW_DISK)
@given(order=st.permutations(sorted(CONTEXT | OTHERS)), args=st.dictionaries(names, names))
def test_equal_contexts_have_equal_tags(tmp_path_factory, order, args):
    """Neither the place, nor the order of writing, nor the times of files count."""
    files = CONTEXT | OTHERS
    first = write(tmp_path_factory.mktemp("first"), files)
    second = write(tmp_path_factory.mktemp("second"), {name: files[name] for name in order})
    for path in context_files(second, "megatron"):
        os.utime(path, (0, 0))
    backwards = dict(reversed(args.items()))
    assert content_tag(first, "megatron", args) == content_tag(second, "megatron", backwards)


@settings(SLOW_DISK)
@given(path=paths, content=st.binary())
def test_every_byte_counts(tmp_path_factory, path, content):
    """Other content of any file is another tag."""
    root = write(tmp_path_factory.mktemp("assets"), CONTEXT)
    before = tag(root)
    (root / path).write_bytes(content)
    assert (tag(root) == before) is (content == CONTEXT[path])


@settings(SLOW_DISK)
@given(folder=st.sampled_from(FOLDERS), name=names, content=st.binary(max_size=4))
def test_every_name_counts(tmp_path_factory, folder, name, content):
    """A file more, even an empty one, is another tag, and so is another name for it."""
    root = write(tmp_path_factory.mktemp("assets"), CONTEXT)
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
    root = write(tmp_path_factory.mktemp("assets"), CONTEXT)
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
    root = write(tmp_path_factory.mktemp("assets"), CONTEXT)
    equal = content_tag(root, "megatron", first) == content_tag(root, "megatron", second)
    assert equal is (first == second)


def test_content_cannot_move_between_files(tmp_path):
    """The same bytes with another boundary are another context."""
    first = write(tmp_path / "a", CONTEXT | {"programs/a.py": b"12", "programs/b.py": b"3"})
    second = write(tmp_path / "b", CONTEXT | {"programs/a.py": b"1", "programs/b.py": b"23"})
    assert tag(first) != tag(second)


def test_link_is_hashed_as_a_link(root):
    """A link to the same content elsewhere is not the file."""
    path = root / "programs" / "train_megatron.py"
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
    """Another image's Dockerfile makes no new image of this one."""
    before = tag(root)
    (root / name).write_bytes(b"changed")
    assert tag(root) == before


def test_each_image_has_its_own_tag():
    """Tags of the real images are twenty hexadecimal digits, and differ."""
    tags = {content_tag(ASSETS, image, {}) for image in REPOSITORIES}
    assert len(tags) == len(REPOSITORIES)
    assert all(len(value) == 20 and int(value, 16) >= 0 for value in tags)


def test_unknown_image_is_an_error(root):
    """A misspelt image has no tag, rather than the tag of the programs alone."""
    with pytest.raises(FileNotFoundError, match="no Dockerfile of image 'megatorn'"):
        content_tag(root, "megatorn", {})


def staged(root: Path, image: str, out: Path) -> list[str]:
    """Stage an asset as the Images stack does, and return its files."""
    app = cdk.App(outdir=str(out), analytics_reporting=False)
    staging = cdk.AssetStaging(
        cdk.Stack(app, "Stack"),
        "Asset",
        source_path=str(root),
        exclude=list(asset_excludes(image)),
        asset_hash="tag",
        asset_hash_type=cdk.AssetHashType.CUSTOM,
    )
    place = Path(staging.absolute_staged_path)
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def test_asset_holds_what_is_hashed(root, tmp_path):
    """CodeBuild gets the files that the tag speaks of, and no others."""
    for folder in (*FOLDERS, "dashboards", "."):
        write(root / folder, dict.fromkeys(JUNK, b"junk"))
    write(root, {"programs/images/deep/programs.py": b"", "images/fsdp/programs/a.py": b""})
    expected = [str(path.relative_to(root)) for path in context_files(root, "megatron")]
    assert expected == sorted([*CONTEXT, "programs/images/deep/programs.py"])
    assert staged(root, "megatron", tmp_path / "out") == expected


@pytest.mark.parametrize("image", sorted(REPOSITORIES))
def test_asset_of_a_real_image_holds_what_is_hashed(image, tmp_path):
    """The same for the folder in this repository."""
    expected = [str(path.relative_to(ASSETS)) for path in context_files(ASSETS, image)]
    assert f"images/{image}/Dockerfile" in expected
    assert staged(ASSETS, image, tmp_path / "out") == expected
