"""Sizes of node groups at EKS and EC2 Auto Scaling, with the standard library alone.

Signature Version 4: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import json
import os
import re
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

_SECONDS = 30
# An instance that did not start then says nothing of one that is asked for now.
_RECENT = timedelta(minutes=30)
_MESSAGE = re.compile(r'(?:<Message>|"[Mm]essage"\s*:\s*")(.*?)(?:</Message>|")', re.DOTALL)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RefusedError(OSError):
    """What AWS says when it refuses a request."""


@dataclass(frozen=True)
class Size:
    """A node group as it is now."""

    active: bool
    """Whether EKS takes another size."""
    wanted: int
    """The larger of what EKS and its scaling group say: EKS learns of the latter a little later."""
    trouble: str
    """Why the last instance did not start, and what EKS finds wrong; empty if nothing is."""


class NodeGroups:
    """The node groups of a cluster in a region."""

    def __init__(self, cluster: str, region: str, suffix: str) -> None:
        self._cluster, self._region, self._suffix = cluster, region, suffix

    def size(self, name: str) -> Size:
        """Return how many nodes a group is asked to have."""
        group = json.loads(self._call("eks", "GET", self._path(name)))["nodegroup"]
        wanted, trouble = int(group["scalingConfig"]["desiredSize"]), ""
        for each in group.get("resources", {}).get("autoScalingGroups", ()):
            found = self._scaling("DescribeAutoScalingGroups", **_member(each["name"]))
            wanted = max(wanted, *map(int, _texts(found, "DesiredCapacity") or ["0"]))
            last = self._scaling(
                "DescribeScalingActivities", AutoScalingGroupName=each["name"], MaxRecords="1"
            )
            recent = any(
                datetime.now(tz=UTC) - datetime.fromisoformat(each) < _RECENT
                for each in _texts(last, "StartTime")
            )
            if recent and set(_texts(last, "StatusCode")) & {"Failed", "Cancelled"}:
                trouble = " ".join(_texts(last, "StatusMessage"))
        issues = group.get("health", {}).get("issues", ())
        trouble = trouble or "; ".join(str(each.get("message", "")) for each in issues)
        return Size(group["status"] == "ACTIVE", wanted, " ".join(trouble.split()))

    def raise_to(self, name: str, nodes: int) -> None:
        """Ask for more nodes."""
        body = {"scalingConfig": {"desiredSize": nodes}, "clientRequestToken": str(uuid.uuid4())}
        self._call("eks", "POST", f"{self._path(name)}/update-config", json.dumps(body).encode())

    def end(self, instance: str) -> None:
        """End one instance, and let its group be smaller by one."""
        self._scaling(
            "TerminateInstanceInAutoScalingGroup",
            InstanceId=instance,
            ShouldDecrementDesiredCapacity="true",
        )

    def _path(self, name: str) -> str:
        return f"/clusters/{self._cluster}/node-groups/{name}"

    def _scaling(self, action: str, **parameters: str) -> str:
        body = urlencode({"Action": action, "Version": "2011-01-01", **parameters})
        return self._call("autoscaling", "POST", "/", body.encode()).decode()

    def _call(self, service: str, method: str, path: str, body: bytes = b"") -> bytes:
        base = os.environ.get("AWS_ENDPOINT_URL") or (
            f"https://{service}.{self._region}.{self._suffix}"
        )
        form = "x-www-form-urlencoded; charset=utf-8" if service == "autoscaling" else "json"
        headers = _signed(
            f"{base}{path}", method, body, (self._region, service), datetime.now(tz=UTC)
        )
        request = urllib.request.Request(  # noqa: S310 -- an address of AWS's, or of a test
            f"{base}{path}",
            data=body or None,
            headers={**headers, "Content-Type": f"application/{form}"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 -- as above
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            message = _MESSAGE.search(text)
            said = message.group(1) if message else f"{error.code} {error.reason}"
            raise RefusedError(f"{service}: {said}") from None


def _member(name: str) -> dict[str, str]:
    return {"AutoScalingGroupNames.member.1": name}


def _texts(document: str, name: str) -> list[str]:
    """Return what the elements of a name hold: of one scaling group, or one activity."""
    return re.findall(rf"<{name}>([^<]*)</{name}>", document)


def _signed(
    url: str, method: str, body: bytes, scope: tuple[str, str], now: datetime
) -> dict[str, str]:
    """Return the headers of a request without a query."""
    keys, parts, time = _keys(), urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-date": time}
    if keys.get("Token"):
        headers["x-amz-security-token"] = keys["Token"]
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name]}\n" for name in sorted(headers)]
    digest = hashlib.sha256(body).hexdigest()
    canonical = "\n".join([method, parts.path, "", "".join(lines), names, digest])
    place = "/".join([time[:8], *scope, "aws4_request"])
    key = f"AWS4{keys['SecretAccessKey']}".encode()
    for part in place.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{time}\n{place}\n{hashed}"
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys['AccessKeyId']}/{place},"
        f" SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _keys() -> dict[str, Any]:
    """Return what to sign with, as the SDKs find it: variables, or EKS Pod Identity's agent."""
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return {
            "AccessKeyId": os.environ["AWS_ACCESS_KEY_ID"],
            "SecretAccessKey": os.environ["AWS_SECRET_ACCESS_KEY"],
            "Token": os.environ.get("AWS_SESSION_TOKEN"),
        }
    # The agent keeps them until shortly before their end, on the same node; the file is renewed.
    token = Path(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text().strip()
    request = urllib.request.Request(  # noqa: S310 -- the agent's, which EKS sets
        os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], headers={"Authorization": token}
    )
    with _DIRECT.open(request, timeout=_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
