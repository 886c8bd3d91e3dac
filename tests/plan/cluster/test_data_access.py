"""What job files name in S3, as keys that a policy can hold."""

import pytest

from megatron_eks.config.job import DataPrepJob, FetchJob
from megatron_eks.plan.cluster.data_access import BucketAccess, plan_data_access


def fetch(uri: str) -> FetchJob:
    """Return a job that fetches from S3."""
    return FetchJob(schema_version=1, kind="fetch", name="f", s3_uri=uri, directory="/shared/f")


def prepare(*sources: str) -> DataPrepJob:
    """Return a job that reads these files."""
    return DataPrepJob(
        schema_version=1,
        kind="data_prep",
        name="p",
        input=sources,
        output_prefix="/shared/p",
        tokenizer="/shared/t",
    )


@pytest.mark.parametrize(
    ("uri", "keys"),
    [
        ("s3://corpora", ("*",)),
        ("s3://corpora/", ("*",)),
        ("s3://corpora/en/", ("en/*",)),
        ("s3://corpora/en", ("en", "en/*")),
    ],
)
def test_a_folder_is_not_the_start_of_another_name(uri, keys):
    """`en` may be an object or a folder, and never `english`."""
    assert plan_data_access([fetch(uri)]).buckets == (BucketAccess("corpora", keys, ()),)


@pytest.mark.parametrize("pattern", ["en/part-*.gz", "en/part-?", "en/part-[0-9]"])
def test_a_pattern_is_open_from_where_it_begins(pattern):
    """IAM knows no sets, and its `?` and `*` are not always the shell's."""
    (bucket,) = plan_data_access([prepare(f"s3://corpora/{pattern}")]).buckets
    assert bucket.read == ("en/part-*",)


def test_what_is_on_the_file_system_is_no_bucket():
    """And what several jobs name is there once."""
    access = plan_data_access(
        [prepare("/shared/a", "s3://bucket/x"), fetch("s3://bucket/x"), prepare("/a")]
    )
    assert access.reads == ("s3://bucket/x",)
    assert access.writes == ()
    assert plan_data_access([]).buckets == ()
