"""The container images of a cluster file: ours, and the user's own."""

from typing import Annotated, Literal

from pydantic import Field

from megatron_eks.catalog.images import Image, TagStrategy, TestLevel
from megatron_eks.config import forms
from megatron_eks.config.forms import Model


class ImageBuild(Model):
    """How one container image is built."""

    test_level: TestLevel = "standard"
    """What an image must pass before it is pushed; docs/images.md has what each runs."""
    tag_strategy: TagStrategy = "auto"
    """The tag beside the hash of the content, which jobs use: none, the version, the commit."""
    build_args: dict[str, str] = Field(default_factory=dict)
    """Arguments of the Dockerfile; they are part of the image's tag."""


class OwnImage(Model):
    """Your own image, built, tested and tagged like this project's images."""

    name: forms.DnsLabel = Field(max_length=40)
    """Name of the image in job files, and of its repository."""
    context: forms.RelativePath
    """The build context: a folder below that of the cluster file."""
    dockerfile: forms.RelativePath = "Dockerfile"
    """In that folder."""
    base: Image | None = None
    """This project's image that becomes BASE_IMAGE, and whose gate must pass."""
    test: forms.Text
    """A shell command in the built image, without a network; if it fails, nothing is pushed."""


class AssetSource(Model):
    """Build from this checkout, uploaded by `cdk deploy`."""

    type: Literal["asset"] = "asset"


class GithubSource(Model):
    """Build from a GitHub repository through a CodeConnections connection."""

    type: Literal["github"]
    repository: Annotated[str, forms.pattern("github")]
    """A fork or copy of this project."""
    branch: Annotated[str, forms.pattern("branch")] = "main"
    connection_arn: Annotated[str, forms.pattern("connection_arn")]
    """Made and confirmed in the console: AWS offers no other way."""
    webhook: bool = False
    """Build on each push to the branch that changes what the image is made of."""

    @property
    def url(self) -> str:
        """Where git finds it."""
        return f"https://github.com/{self.repository}.git"


ImageSource = Annotated[AssetSource | GithubSource, Field(discriminator="type")]


class Images(Model):
    """The container images of the training jobs."""

    megatron: ImageBuild = ImageBuild()
    fsdp: ImageBuild = ImageBuild()
    own: tuple[OwnImage, ...] = ()
    """Your own images, which jobs name like this project's images."""
    source: ImageSource = AssetSource()
    prefix: Annotated[str, forms.pattern("repository_prefix")] = Field(default="", max_length=100)
    """Before the names of the repositories: two clusters of one account and region need two."""
    mirror: Annotated[str, forms.pattern("registry")] | None = None
    """Where copies of other registries' images are, for a cluster without a way out."""
