"""No path or S3 URI of a file leads elsewhere than it seems to."""

from datetime import UTC, datetime

import pytest
import yaml

from megatron_eks.config.errors import Level
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import odd_paths
from megatron_eks.project import ROOT, check_files

JOBS = {
    "fsdp-llama-2-7b": ("data.dataset", "data.tokenizer", "checkpoint.directory"),
    "megatron-cpt-techpulse": (
        "data.prefix",
        "data.tokenizer",
        "data.cache_dir",
        "checkpoint.directory",
        "checkpoint.pretrained",
        "runtime.torchrun_path",
    ),
    "bridge-cpt-techpulse": ("data.prefix",),
    "data-prep-techpulse": ("input", "output_prefix", "tokenizer"),
    "fetch-llama-3-1-8b": ("directory",),
    "import-llama-3-1-8b": ("source", "target"),
}
S3 = {
    "megatron-cpt-techpulse": ("checkpoint.s3_uri",),
    "data-prep-techpulse": ("input",),
    "fetch-llama-3-1-8b": ("s3_uri",),
}
PLACES = [(job, key) for job, keys in JOBS.items() for key in keys]
WORDS = [("megatron-cpt-techpulse", "extra_args"), ("bridge-cpt-techpulse", "overrides")]
S3_PLACES = [(job, key) for job, keys in S3.items() for key in keys]

ODD_PATHS = [
    "/shared/../../root/.ssh",
    "/shared/..",
    "/..",
    "/shared/a/../b",
    "../shared/x",
    "/shared/x\0y",
    "/shared/x\ny",
    "/shared/x\x1b[2J",
]
ODD_URIS = [
    "s3://bucket/../x",
    "s3://bucket/a/../b",
    "s3://bucket/..",
    "s3://bucket/./x",
    "s3://bucket//x",
    "s3://bucket/a//x",
    "s3://bucket/x\0y",
    "s3://../x",
]

# Where a text is one of several, and how it is written there.
_WRITTEN = {
    "input": lambda value: [value],
    "extra_args": lambda value: [f"--tensorboard-dir={value}"],
    "overrides": lambda value: {"logger.tensorboard_dir": value},
    "runtime.env": lambda value: {"TRITON_CACHE_DIR": value},
}


def changed(folder, job, key, value):
    """Write a shipped job with another value, and return the errors at that place."""
    content = yaml.safe_load((ROOT / "jobs" / f"{job}.yaml").read_text())
    *blocks, last = key.split(".")
    block = content
    for name in blocks:
        block = block.setdefault(name, {})
    block[last] = _WRITTEN.get(key, lambda value: value)(value)
    if key == "s3_uri":
        content.pop("model", None)
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(content))
    found = check_files(ROOT / "cluster.yaml", [file], datetime.now(tz=UTC).date()).findings
    at_key = [each for each in found if ".".join(map(str, each.path)).startswith(key)]
    return [each for each in at_key if each.level is Level.ERROR and each.file == str(file)]


@pytest.mark.parametrize(
    ("job", "key", "value"),
    [
        *((job, key, value) for job, key in PLACES for value in ODD_PATHS),
        # Their own parsers judge other signs.
        *((job, key, value) for job, key in WORDS for value in ODD_PATHS if ".." in value),
        ("megatron-cpt-techpulse", "runtime.env", "/shared/../../root"),
        ("megatron-cpt-techpulse", "runtime.env", "/shared/.."),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path, job, key, value):
    """In every field that holds one, further arguments, overrides and variables included."""
    errors = changed(tmp_path, job, key, value)
    assert len(errors) == 1, [str(each) for each in errors]
    assert errors[0].remedy


@pytest.mark.parametrize("value", ODD_URIS)
@pytest.mark.parametrize(("job", "key"), S3_PLACES)
def test_a_uri_that_leads_elsewhere_is_refused(tmp_path, job, key, value):
    """S3 takes such keys as they stand, and file systems do not."""
    errors = changed(tmp_path, job, key, value)
    assert len(errors) == 1, [str(each) for each in errors]
    assert errors[0].remedy


@pytest.mark.parametrize("value", ODD_URIS)
def test_a_data_repository_leads_nowhere_else(tmp_path, value):
    """FSx would show such keys under names that no path reaches."""
    content = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    content["storage"]["lustre"]["data_repositories"] = [{"path": "/data", "s3_uri": value}]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(content))
    found = check_files(file, [], datetime.now(tz=UTC).date()).findings
    errors = [each for each in found if each.level is Level.ERROR]
    assert [each.path[-1] for each in errors] == ["s3_uri"]


@pytest.mark.parametrize(
    "value",
    [
        "/shared/a...b/..c/.d",
        "/shared/data/",
        "s3://bucket/a..b/",
        "allenai/c4",
        "/shared/data/*.jsonl",
        "https://example.com/a//b",
        "...",
        "a . b",
    ],
)
def test_what_only_looks_like_it_is_taken(value):
    """Dots within names, a slash at the end, and texts that are no paths."""
    document = read_mapping(yaml.safe_dump({"x": [value]}), "x.yaml")
    assert list(odd_paths(document.value)) == []


def test_texts_of_the_user_s_own_are_left_alone():
    """A tag or a variable need not be a path."""
    text = "{tags: {a: /x/../y}, runtime: {env: {LD_LIBRARY_PATH: /a/../b}}}"
    assert list(odd_paths(read_mapping(text, "x.yaml").value)) == []
