"""What `meks apply` puts into the user's Grafana, and asks the user's own Prometheus.

Requests and answers: Grafana, "Dashboard HTTP API" and "Folder HTTP API"; Prometheus, "HTTP API".
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from megatron_eks.config.cluster import Observability
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, NOT_FOUND, NOT_REACHABLE, USAGE, Failure
from megatron_eks.ops.output import count
from megatron_eks.plan.cluster.alerts import ALERTS
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.observability import scrape_configuration
from megatron_eks.project import shown

_SECONDS = 20
_TOKEN_KEY = "token"  # noqa: S105 -- the name of a key, as `meks secret set` writes it
_LONGEST_MESSAGE = 200
# What Grafana writes into a dashboard itself.
_GRAFANAS = frozenset({"id", "version", "schemaVersion"})
_PLACE = ("observability", "prometheus_url")

_Json = Any
"""What came as JSON, which has no narrower type."""


def bring(
    plan: ClusterPlan, client: Client, manifests: Path, console: Console, *, only_diff: bool
) -> int:
    """Put dashboards into Grafana, and report what the user's own Prometheus lacks."""
    watched = plan.observability
    if watched is None:
        return DONE
    if watched.prometheus_url is not None:
        console.report(list(_lacking(watched.prometheus_url, plan, manifests)))
    if watched.grafana is None:
        return DONE
    grafana = _Grafana(watched.grafana.url.rstrip("/"), _token(plan, watched, client))
    return _put(plan.name, grafana, manifests / "dashboards", console, only_diff=only_diff)


def _put(
    cluster: str, grafana: "_Grafana", source: Path, console: Console, *, only_diff: bool
) -> int:
    boards = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(source.glob("*"))]
    if not boards:
        found, remedy = f"no dashboards in {shown(source)}", "write them: meks synth"
        raise Failure(Code.NOT_SYNTHESISED, found, remedy, exit_code=USAGE)
    there = {each["uid"]: grafana.ask(f"/api/dashboards/uid/{each['uid']}") for each in boards}
    differing = [
        each for each in boards if not _holds((there[each["uid"]] or {}).get("dashboard"), each)
    ]
    for each in differing:
        verb = "change" if there[each["uid"]] else "create"
        console.write(f"{verb} dashboard {each['title']!r} in {grafana.url}\n")
    if not differing:
        console.say(f"{grafana.url}: {count(len(boards), 'dashboard')} as they should be")
    if only_diff or not differing:
        return DONE
    if not console.confirm(f"Write to {grafana.url}?"):
        console.say("no dashboard was changed")
        return FAILED
    folder = f"meks-{cluster}"
    if grafana.ask(f"/api/folders/{folder}") is None:
        grafana.ask("/api/folders", {"uid": folder, "title": cluster})
    for each in differing:
        # Somebody may have moved it; without a folder it would go to the root.
        place = ((there[each["uid"]] or {}).get("meta") or {}).get("folderUid", folder)
        body = {"dashboard": {**each, "id": None}, "folderUid": place, "overwrite": True}
        grafana.ask("/api/dashboards/db", {**body, "message": "meks apply"})
        console.say(f"wrote dashboard {each['title']!r}")
    return DONE


@dataclass(frozen=True)
class _Grafana:
    url: str
    _token: str = field(repr=False)

    def ask(self, path: str, body: object = None) -> _Json:
        """Return what is there, None where nothing is; or create or replace it by a body."""
        where = self.url
        try:
            status, answer = _ask(f"{where}{path}", self._token, body)
        except OSError as error:
            remedy = "see that the address is right, and reached from here (VPN, certificate)"
            code, found = Code.GRAFANA, str(error)
            raise Failure(code, found, remedy, where=where, exit_code=NOT_REACHABLE) from error
        if status == HTTPStatus.NOT_FOUND and body is None:
            return None
        if status == HTTPStatus.OK and isinstance(answer, dict):
            return answer
        said = answer.get("message", "") if isinstance(answer, dict) else ""
        said = str(said).replace(self._token, "...")[:_LONGEST_MESSAGE]
        found = f"it answers {path} with {status}{f': {said}' if said else ''}"
        remedy = "see that observability.grafana.url is the address of Grafana itself"
        if status == HTTPStatus.UNAUTHORIZED:
            remedy = "store a token that is valid: meks secret set NAME < FILE, with the name "
            remedy += "under observability.grafana.token_secret"
        elif status == HTTPStatus.FORBIDDEN:
            remedy = "give the token's service account the role Editor in Grafana"
        elif 300 <= status < 400:  # noqa: PLR2004 -- the redirections
            remedy = "a token goes to no other address: set observability.grafana.url to that one"
        raise Failure(Code.GRAFANA, found, remedy, where=where)


def _token(plan: ClusterPlan, watched: Observability, client: Client) -> str:
    """Read the token, which is shown nowhere."""
    assert watched.grafana is not None  # noqa: S101 -- the caller looked
    name, namespace = watched.grafana.token_secret, plan.platform.namespace
    secret = client.find("v1", "Secret", name, namespace) or {}
    encoded = (secret.get("data") or {}).get(_TOKEN_KEY, "")
    token = base64.b64decode(encoded).decode("utf-8", errors="replace").strip()
    if not token.isascii() or not token.isprintable() or not token:
        found = f"no Secret {name} with a key {_TOKEN_KEY} in namespace {namespace}"
        remedy = f"store a service account's token: meks secret set {name} < FILE"
        raise Failure(Code.SECRET_NOT_FOUND, found, remedy, exit_code=NOT_FOUND)
    return token


def _holds(theirs: _Json, ours: _Json) -> bool:
    """Tell whether Grafana's has all that ours has; what Grafana adds does not count."""
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and all(
            key in _GRAFANAS or (key in theirs and _holds(theirs[key], value))
            for key, value in ours.items()
        )
    if isinstance(ours, list):
        same = isinstance(theirs, list) and len(theirs) == len(ours)
        return same and all(map(_holds, theirs, ours))
    return bool(theirs == ours)


def _lacking(url: str, plan: ClusterPlan, manifests: Path) -> Iterator[Finding]:
    url, folder = url.rstrip("/"), shown(manifests / "observability")
    try:
        rules, pools = _data(f"{url}/api/v1/rules?type=alert"), _data(f"{url}/api/v1/scrape_pools")
        has = {rule["name"] for group in rules["groups"] for rule in group["rules"]}
        scraped = {*pools["scrapePools"]}
    except (OSError, KeyError, TypeError) as problem:
        why = problem if isinstance(problem, OSError) else "its answer is no Prometheus's"
        found = f"{url} does not say which alerts it has: {why}"
        remedy = f"see that it reads {folder}/rules.yaml and scrape.yaml, and who is told"
        yield warning(Code.RULES_MISSING, _PLACE, found, remedy)
        return
    platform = plan.platform
    scrape = scrape_configuration(platform.namespaces, queues=platform.kueue)
    wanted: _Json = scrape["scrape_configs"]
    rows: Sequence[tuple[str, list[str], str]] = (
        ("alerts", [each.name for each in ALERTS if each.name not in has], "rules"),
        ("scrape jobs", sorted({each["job_name"] for each in wanted} - scraped), "scrape"),
    )
    for what, missing, file in rows:
        if missing:
            found = f"{url} lacks {count(len(missing), what.rstrip('s'))}: {', '.join(missing)}"
            yield warning(Code.RULES_MISSING, _PLACE, found, f"load {folder}/{file}.yaml into it")


def _data(url: str) -> _Json:
    status, answer = _ask(url)
    if status != HTTPStatus.OK:
        raise OSError(f"it answers with {status}")
    return answer["data"]


class _NoRedirect(HTTPRedirectHandler):
    """A token goes to the address that the cluster file names, and to no other."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


def _ask(url: str, token: str = "", body: object = None) -> tuple[int, _Json]:
    """Return the status and the JSON of an answer; raise OSError where none comes."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, headers)  # noqa: S310 -- the file's format allows http and https
    try:
        with build_opener(_NoRedirect()).open(request, timeout=_SECONDS) as answer:
            return answer.status, _json(answer.read())
    except HTTPError as error:
        with error:
            return error.code, _json(error.read())
    except (OSError, ValueError, HTTPException) as error:
        raise OSError(f"no answer: {getattr(error, 'reason', None) or error}") from error


def _json(text: bytes) -> _Json:
    try:
        return json.loads(text)
    except ValueError:
        return None
