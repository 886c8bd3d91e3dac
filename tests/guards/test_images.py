"""Repositories of images."""

import json

import pytest

from tests.guards.slips import ABSENT, in_template

REPOSITORY, RULES = "ECR::Repository", "LifecyclePolicy LifecyclePolicyText"
FILTERS, EXPIRES = "ImageTagMutabilityExclusionFilters", "EXPIRES"


def lifecycle(**selection: object) -> str:
    """Return a lifecycle policy of one rule."""
    chosen = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 30, **selection}
    rule = {"rulePriority": 1, "selection": chosen, "action": {"type": "expire"}}
    return json.dumps({"rules": [rule]})


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (REPOSITORY, "ImageTagMutability", "MUTABLE", "ENCRYPTION"),
        (REPOSITORY, FILTERS, ABSENT, "ENCRYPTION"),
        (REPOSITORY, f"{FILTERS} 0 {FILTERS[:-1]}Value", "*", "ENCRYPTION"),
        (REPOSITORY, "DeletionPolicy", "Delete", EXPIRES),
        (REPOSITORY, "EncryptionConfiguration", ABSENT, "ENCRYPTION"),
        (REPOSITORY, RULES, lifecycle(tagStatus="any"), EXPIRES),
        (REPOSITORY, RULES, lifecycle(tagStatus="tagged", tagPatternList=["*"]), EXPIRES),
    ],
)
def test_mistakes_in_images(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        (REPOSITORY, RULES, lifecycle(tagStatus="untagged", countNumber=7)),
        (REPOSITORY, RULES, lifecycle(tagStatus="tagged", tagPrefixList=["dev-"])),
    ],
)
def test_other_images_that_work(resource, path, value):
    """Nothing is found in them."""
    assert in_template(resource, path, value) == set()
