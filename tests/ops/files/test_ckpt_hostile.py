"""`meks ckpt` and an S3 that others write to: what it says is checked before it is believed."""

import json
from pathlib import Path

import pytest

from megatron_eks.programs import checkpoint_sync
from megatron_eks.programs.checkpoint import manifest_format, manifests
from tests.programs import saved
from tests.programs.s3_world import URI, call

SUM = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
BOMB = b"[" * 100_000
DEEP = "[" * 900 + "]" * 900
FILE = {"path": "metadata.json", "size": 2, "checksum": SUM, "part_bytes": 64}

# Each starts commands.
pytestmark = pytest.mark.tools


def manifest(name, files, /, **more):
    """Return a manifest whose id is right, whatever else is wrong with it."""
    entries = [manifest_format.FileEntry(**file) for file in files]
    made = manifest_format.Manifest(name, 0, tuple(entries))
    fields = {"version": 1, "id": made.id, "name": name, "step": int(name[5:]), "files": files}
    return json.dumps({**fields, **more}).encode()


def one(**more):
    """Return a function that makes a manifest of one file, with these fields."""
    return lambda name: manifest(name, [{**FILE, **more}])


def of(**more):
    """Return a function that makes a manifest with these fields."""
    return lambda name: manifest(name, [FILE], **more)


# What somebody may have put under the name of a manifest, and what is said of it.
MANIFESTS = [
    (lambda _: BOMB, "cannot be read"),
    (lambda _: b"", "cannot be read"),
    (lambda _: b"[]", "it is no JSON object"),
    (lambda _: f'{{"version": {DEEP}}}'.encode(), "version a list"),
    (lambda _: json.dumps({"version": "A" * 10**6}).encode(), "version 'AAA"),
    (lambda name: manifest(name, []), "it lists no files"),
    (of(files={"a": 1}), "it lists no files"),
    (of(files=[[]]), "a file has other fields"),
    (of(name=5), "5 is no name of a checkpoint"),
    (of(name="../iter_0000001"), "is no name of a checkpoint"),
    (lambda _: manifest("iter_0009999", [FILE]), "it is the one of iter_0009999"),
    (of(step="1"), "step '1' is not the one"),
    (lambda name: of()(name).replace(b'"step": ', b'"step": 1e400, "s": '), "step inf is not"),
    (of(id="0" * 16), "its id does not belong to its content"),
    (one(path="../outside"), "'../outside' is no path inside"),
    (one(path="/outside"), "'/outside' is no path inside"),
    (one(path="."), "'.' is no path inside"),
    (one(path="manifest.json"), "'manifest.json' is no path inside"),
    (one(path="a\x1b]52;c;AAAA\x1b\\"), "is no path inside"),
    (one(path="a" * 300), "is no path inside"),
    (one(path=["a"]), "a list is no path inside"),
    (one(size=-1), "sizes are -1 and 64"),
    (one(size=1.5), "sizes are 1.5 and 64"),
    (one(part_bytes=0), "sizes are 2 and 0"),
    (one(checksum="AAAA"), "is no SHA-256 checksum"),
    (lambda name: manifest(name, [FILE, FILE]), "it lists a file twice"),
    (
        lambda name: manifest(name, [{**FILE, "path": "a"}, {**FILE, "path": "a/b"}]),
        "a is a file and a directory",
    ),
    (one(), "metadata.json is missing"),
    (one(size=10**18), "metadata.json is missing"),
]

TERMINAL = b'{"version": 1, "name": "x\\u001b]52;c;AAAA\\u001b\\\\", "step": 1}'
# What somebody may have put under `latest`.
POINTERS = [
    BOMB,
    b"",
    b"{}",
    TERMINAL,
    b'{"version": 1, "name": "../..", "step": 1}',
    b'{"version": 1, "name": "iter_0000500", "step": "500"}',
    b'{"version": 1, "name": "iter_0000500", "step": 1e400}',
    b'{"version": 1, "name": "iter_0000700", "step": 700}',
]


def tree(root: Path) -> list[str]:
    """Return what is in a directory."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_no_hostile_manifest_is_believed(meks, as_json, s3, tmp_path):
    """Each is damaged, for its reason, in every command; nothing is written."""
    for number, (make, _) in enumerate(MANIFESTS, 1):
        name = f"iter_{number:07d}"
        s3.put(f"{name}/manifest.json", make(name))
    rows = as_json("ls", URI)["checkpoints"]
    assert [row["state"] for row in rows] == ["damaged"] * len(MANIFESTS)
    for row, (_, expected) in zip(rows, MANIFESTS, strict=True):
        assert expected in row["why"]
        assert len(row["why"]) < 500
    found = as_json("verify", URI, code=4)["checkpoints"]
    assert [each["state"] for each in found] == ["damaged"] * len(MANIFESTS)
    far = tmp_path / "deep" / "far"
    done = meks("ckpt", "pull", URI, "--local", far)
    assert (done.returncode, done.stdout) == (4, "")
    assert "\x1b" not in done.stderr
    assert [path for path in tree(tmp_path) if "iter_" in path or "outside" in path] == []
    assert not (far / "latest_checkpointed_iteration.txt").exists()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"junk": b"{}"}, ".metadata is missing or empty"),
        ({"metadata.json": b"{}", ".metadata": b""}, "metadata.json cannot be read"),
        ({"metadata.json": b'{"sharded_backend": "torch_dist"}'}, ".metadata is missing or empty"),
    ],
)
def test_what_no_run_could_load_is_not_fetched(meks, s3, tmp_path, files, said):
    """A manifest that agrees with its objects makes no checkpoint of them."""
    place = tmp_path / "made" / "iter_0000100"
    place.mkdir(parents=True)
    for path, content in files.items():
        (place / path).write_bytes(content)
    made = manifests.of_directory(place, threads=1)
    for file in made.files:
        s3.client.put_object(
            Bucket="checkpoints",
            Key=f"run/{made.key(file)}",
            Body=files[file.path],
            ChecksumAlgorithm="SHA256",
        )
    s3.put("iter_0000100/manifest.json", made.text())
    s3.put("latest", manifest_format.latest_text("iter_0000100"))
    far = tmp_path / "far"
    done = meks("ckpt", "pull", URI, "--local", far)
    assert (done.returncode, done.stdout) == (4, "")
    assert said in done.stderr
    assert not [path for path in tree(far) if path.startswith(("iter_", "latest"))]


def test_a_hostile_pointer_hides_no_whole_checkpoint(meks, as_json, s3, tmp_path):
    """A pull says what is wrong with it, and takes the newest whole one; a push mends it."""
    saved.seal(saved.megatron(tmp_path / "near", 500))
    meks("ckpt", "push", tmp_path / "near", URI)
    for number, text in enumerate(POINTERS):
        s3.put("latest", text)
        far = tmp_path / f"far{number}"
        done = call("checkpoint_sync", checkpoint_sync.main, "pull", far, URI)
        assert (done.code, done.summary["pulled"]) == (0, "iter_0000500"), done.stderr
        assert "\x1b" not in done.stderr
        assert len(done.summary["findings"]) == 1
    s3.put("latest", TERMINAL)
    done = meks("ckpt", "pull", URI, "--local", tmp_path / "far")
    assert (done.returncode, done.stdout) == (0, f"iter_0000500 is in {tmp_path / 'far'}\n")
    assert "\x1b" not in done.stderr
    assert as_json("ls", URI)["latest_in_s3"] is None
    assert meks("ckpt", "push", tmp_path / "near", URI).returncode == 0
    assert as_json("ls", URI)["latest_in_s3"] == "iter_0000500"
