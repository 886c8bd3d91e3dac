"""How commands open the account of a cluster."""

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from megatron_eks.arguments.reach import console_here
from megatron_eks.arguments.shared import today

if TYPE_CHECKING:
    from megatron_eks.ops.aws.console import Console
    from megatron_eks.ops.aws.tools import Tools


def on_aws(given: argparse.Namespace, act: "Callable[[Tools], int]") -> int:
    """Open the cluster's account and act in it."""
    from megatron_eks.ops.aws.tools import open_tools  # noqa: PLC0415 -- boto3

    return with_console(
        given, lambda console: act(open_tools(given.cluster, today(), console, os.environ))
    )


def with_console(given: argparse.Namespace, act: "Callable[[Console], int]") -> int:
    """Act for who sits at the terminal; what boto3 raises becomes a plain failure."""
    from megatron_eks.ops.aws.session import ERRORS, explained  # noqa: PLC0415 -- boto3

    try:
        return act(console_here(yes=getattr(given, "yes", False)))
    except ERRORS as error:
        raise explained(error) from error
