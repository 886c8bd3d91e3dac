"""fetch from S3: one object or a folder, continued, and never half there."""

import shutil

import pytest

from megatron_eks.programs import s3_store
from megatron_eks.programs.fetch import __main__ as fetch
from tests import hostile
from tests.programs import s3_world
from tests.programs.s3_world import BUCKET


@pytest.fixture
def run(s3, monkeypatch):
    """Return a function that runs fetch; it waits less between attempts than in life."""
    assert s3.proxy.requests == []
    monkeypatch.setattr(s3_store, "_PAUSE_SECONDS", 0.01)
    return lambda *words: s3_world.call("fetch", fetch.main, *words)


@pytest.fixture
def data(s3):
    """Return what a bucket holds below `run/data`."""
    files = {"a.jsonl": b"a" * 100_000, "deep/b.jsonl": b"b" * 1000, "empty": b""}
    for name, content in files.items():
        s3.put(f"data/{name}", content)
    s3.put("database/other", b"not asked for")
    return files


def held(directory):
    """Return the files of a directory but the marker."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".fetched.json"
    }


@pytest.mark.parametrize("uri", [f"s3://{BUCKET}/run/data", f"s3://{BUCKET}/run/data/"])
def test_folder_is_fetched_whole(run, data, tmp_path, uri):
    """Folders keep their shape; `data` is not the start of `database`."""
    done = run("--s3-uri", uri, "--directory", tmp_path / "d")
    assert (done.code, done.summary["files"]) == (0, 3)
    assert held(tmp_path / "d") == data


def test_single_object_is_fetched(run, data, tmp_path):
    """A URI may name one object."""
    done = run("--s3-uri", f"s3://{BUCKET}/run/data/a.jsonl", "--directory", tmp_path / "d")
    assert done.code == 0
    assert held(tmp_path / "d") == {"a.jsonl": data["a.jsonl"]}


@pytest.mark.usefixtures("data")
def test_interrupted_fetch_goes_on(run, s3, tmp_path):
    """Nothing is visible until all is there; files that are here are not fetched again."""
    words = ("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    s3.fail("GET .*b.jsonl", "cut answer")
    assert run(*words).code == 5
    assert not (tmp_path / "d").exists()
    s3.heal()
    assert run(*words).code == 0
    assert s3.proxy.seen("GET .*a.jsonl") == []
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.mark.usefixtures("data")
def test_object_that_changes_meanwhile_is_no_data(run, s3, tmp_path):
    """A listing and its objects belong together."""
    s3.before("HEAD .*b.jsonl", lambda: s3.put("data/deep/b.jsonl", b"longer" * 1000))
    done = run("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    assert done.code == 4
    assert "it changed while the others were fetched" in done.findings[0]
    assert not (tmp_path / "d").exists()


def test_a_fetched_directory_s_marker_says_nothing_of_a_copy(run, s3, data, tmp_path):
    """What was fetched and sent to S3 again carries an older marker, which stays there."""
    first = ("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "first")
    run(*first)
    s3.put("copy/.fetched.json", (tmp_path / "first" / ".fetched.json").read_bytes())
    s3.put("copy/a.jsonl", data["a.jsonl"])
    words = ("--s3-uri", f"s3://{BUCKET}/run/copy", "--directory", tmp_path / "second")
    assert [run(*words).code, run(*words).code] == [0, 0]
    assert run(*first[:3], tmp_path / "second").code == 4
    assert held(tmp_path / "second") == {"a.jsonl": data["a.jsonl"]}


@pytest.mark.usefixtures("data")
def test_what_another_job_fetches_beside_stays(run, tmp_path):
    """Only half a download of the same directory makes room."""
    other, own = tmp_path / ".fetch-d-en-0123456789ab", tmp_path / ".fetch-d-0123456789ab"
    for each in (other, own):
        each.mkdir()
    words = ("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    assert run(*words).code == 0
    assert (other.exists(), own.exists()) == (True, False)


@pytest.mark.parametrize("name", ["a//b", "a/./b", "a/../b", "../b", "/b", "a.jsonl/b"])
def test_object_whose_name_is_no_file_s_is_refused(run, s3, data, tmp_path, name):
    """Its name leads elsewhere, or to what is another object."""
    s3.put(f"data/{name}", b"x")
    done = run("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    assert done.code == 4
    assert "rename it at its source" in done.findings[0]
    assert list(tmp_path.iterdir()) == []
    assert data


@pytest.mark.parametrize("key", ["../x", "a/../b", "a//b", "./a", "a/..", "a\nb", "/a"])
def test_uri_that_leads_elsewhere_is_none(run, s3, tmp_path, key):
    """HTTP libraries resolve `..` before S3 sees it."""
    s3.heal()
    done = run("--s3-uri", f"s3://{BUCKET}/{key}", "--directory", tmp_path / "d")
    assert done.code == 2
    assert "no S3 URI" in done.findings[0]
    assert s3.proxy.requests == []


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        (f"s3://{BUCKET}/run/none", 3),
        ("s3://no-such-bucket/data", 3),
        ("https://bucket/data", 2),
    ],
)
def test_mistakes_have_their_exit_codes(run, tmp_path, uri, code):
    """2 for the command line, 3 for what is not there."""
    assert run("--s3-uri", uri, "--directory", tmp_path / "d").code == code


def plant_link(directory, name, target):
    """Put a link where an interrupted fetch goes on."""
    (staging,) = directory.parent.glob(f".fetch-{directory.name}-*")
    shutil.rmtree(staging / name, ignore_errors=True)
    (staging / name).unlink(missing_ok=True)
    (staging / name).symlink_to(target)
    return staging / name


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", ["deep", "a.jsonl", "deep/b.jsonl"])
def test_link_that_somebody_planted_leads_nowhere(run, s3, tmp_path, name):
    """All pods write where the data go; what is fetched stays inside."""
    words = ("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    s3.fail("GET .*b.jsonl", "cut answer")
    assert run(*words).code == 5
    s3.heal()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = plant_link(tmp_path / "d", name, elsewhere)
    done = run(*words)
    assert done.code == 4
    assert f"error {link}: a link, and what is written there would go elsewhere" in done.findings[0]
    assert list(elsewhere.iterdir()) == []
    link.unlink()
    assert run(*words).code == 0


@pytest.mark.usefixtures("data")
def test_link_in_the_place_of_the_folder_beside_leads_nowhere(run, s3, tmp_path):
    """Its name is no secret."""
    words = ("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    s3.fail("GET .*b.jsonl", "cut answer")
    assert run(*words).code == 5
    (staging,) = tmp_path.glob(".fetch-d-*")
    shutil.rmtree(staging)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    staging.symlink_to(elsewhere)
    s3.heal()
    assert run(*words).code == 4
    assert list(elsewhere.iterdir()) == []


def test_keys_do_not_act_on_a_terminal(run, s3, tmp_path):
    """They go into the pod's log, and from there to people; the files have them as they are."""
    text = hostile.ALL.replace("/", "").replace("\0", "")
    names = {text[start : start + 60] for start in range(0, len(text), 60)}
    for name in names:
        s3.put(f"data/{name}", b"x")
    done = run("--s3-uri", f"s3://{BUCKET}/run/data", "--directory", tmp_path / "d")
    assert done.code == 0, done.stderr
    assert hostile.acting(done.stderr) == []
    assert held(tmp_path / "d").keys() == names
