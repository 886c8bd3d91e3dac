"""Puts our operations in the place of moto's, and lets nobody judge bucket policies."""

from moto.amp import urls as amp_urls
from moto.autoscaling import urls as scaling_urls
from moto.cloudformation import urls as cloudformation_urls
from moto.codebuild import urls as codebuild_urls
from moto.core.responses import BaseResponse
from moto.ec2 import urls as ec2_urls
from moto.eks import urls as eks_urls
from moto.fsx import urls as fsx_urls
from moto.iam import urls as iam_urls
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket
from moto.servicequotas import urls as quota_urls

from megatron_eks.localcloud.aws.cloudformation.api import CloudFormationApi
from megatron_eks.localcloud.aws.cloudformation.region import Regions
from megatron_eks.localcloud.aws.services.api_server import ApiServer
from megatron_eks.localcloud.aws.services.codebuild import CodeBuildApi
from megatron_eks.localcloud.aws.services.ec2 import Ec2Api
from megatron_eks.localcloud.aws.services.eks_access import Access
from megatron_eks.localcloud.aws.services.eks_addons import Addons
from megatron_eks.localcloud.aws.services.eks_clusters import Clusters
from megatron_eks.localcloud.aws.services.eks_nodegroups import Nodegroups
from megatron_eks.localcloud.aws.services.fsx import FsxApi
from megatron_eks.localcloud.aws.services.iam import IamApi
from megatron_eks.localcloud.aws.services.operation import Regional
from megatron_eks.localcloud.aws.services.prometheus import PrometheusApi
from megatron_eks.localcloud.aws.services.quotas import QuotasApi
from megatron_eks.localcloud.aws.services.scaling import ScalingApi
from megatron_eks.localcloud.aws.services.shapes import check_requests
from megatron_eks.localcloud.aws.values import Value


class EksApi(Addons, Access, Nodegroups):
    """All operations of EKS."""


def install(regions: Regions, api_server: ApiServer | None) -> None:
    """Change moto's tables of operations; before the first request, and once in a process."""
    Regional.regions = regions
    Clusters.api_server = api_server
    _route(cloudformation_urls.url_paths, "{0}/$", CloudFormationApi)
    _route(codebuild_urls.url_paths, "{0}/$", CodeBuildApi)
    _route(scaling_urls.url_paths, "{0}/$", ScalingApi)
    _route(ec2_urls.url_paths, "{0}/", Ec2Api)
    _route(fsx_urls.url_paths, "{0}/$", FsxApi)
    _route(iam_urls.url_paths, "{0}/$", IamApi)
    _route(quota_urls.url_paths, "{0}/$", QuotasApi)
    for paths, api in ((amp_urls.url_paths, PrometheusApi), (eks_urls.url_paths, EksApi)):
        paths.clear()
        # The operation is found by boto3's own table of addresses.
        _route(paths, "{0}/(?P<address>.+)$", api)
    # moto evaluates statements without their conditions: the usual "deny without TLS" would deny
    # everything.
    setattr(FakeBucket, "get_permission", _no_opinion)  # noqa: B010 -- a method is no attribute to mypy
    check_requests()


def _route(paths: Value, path: str, answer: type[BaseResponse]) -> None:
    paths[path] = answer.dispatch


def _no_opinion(bucket: FakeBucket, action: str, resource: str) -> PermissionResult:
    del bucket, action, resource
    return PermissionResult.NEUTRAL
