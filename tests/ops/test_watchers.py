"""Dashboards come into Grafana with `meks apply`, and its token goes nowhere else."""

import base64
import json
from dataclasses import replace

import pytest

from megatron_eks.charts.dashboards import write_dashboards
from megatron_eks.config.cluster import Grafana, Observability
from megatron_eks.config.codes import Code
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.ops.cluster import watchers
from megatron_eks.ops.failure import Failure
from tests.charts.rendered import cluster
from tests.ops.aws.fakes import FakeKubernetes, console, said, written
from tests.ops.grafana_server import TOKEN, serve


class Kubernetes(FakeKubernetes):
    """An API server with one Secret."""

    def find(self, api_version, kind, name, namespace=None):
        """Return it by its name."""
        assert (api_version, kind, namespace) == ("v1", "Secret", "megatron-workshop")
        found = {"data": {"token": base64.b64encode(f"{self.token}\n".encode()).decode()}}
        return found if name == "grafana" else None

    token = TOKEN


@pytest.fixture
def grafana():
    """Return a Grafana with nothing in it."""
    with serve() as found:
        yield found


def plan_for(port, named="grafana"):
    """Return the plan of a cluster whose dashboards go to a Grafana of this machine."""
    wish = Grafana(url=f"http://localhost:{port}/", token_secret=named)
    return replace(cluster(), observability=Observability(grafana=wish))


def bring(folder, plan, *, kubernetes=None, answers=None, only_diff=False):
    """Run that part of the command; return its exit code and console."""
    write_dashboards(plan, folder / "dashboards")
    of = console(answers, yes=answers is None)
    done = watchers.bring(plan, kubernetes or Kubernetes(), folder, of, only_diff=only_diff)
    assert TOKEN not in said(of) + written(of)
    return done, of


def test_dashboards_are_put_once_and_again_where_they_differ(tmp_path, grafana):
    """Into a folder of the cluster; whoever moves one has it stay there."""
    plan = plan_for(grafana.port)
    done, of = bring(tmp_path, plan, only_diff=True)
    assert (done, grafana.written) == (0, [])
    assert written(of).count("create dashboard 'techpulse: ") == 4
    assert bring(tmp_path, plan, answers="n\n")[0] == 1
    assert not grafana.boards
    bring(tmp_path, plan)
    assert grafana.folders == {"meks-techpulse": {"uid": "meks-techpulse", "title": "techpulse"}}
    assert len(grafana.boards) == 4
    before = [*grafana.written]
    assert "4 dashboards as they should be" in said(bring(tmp_path, plan)[1])
    assert grafana.written == before
    grafana.folders["theirs"] = {}
    changed = grafana.boards["meks-techpulse-job"]
    changed["meta"]["folderUid"] = "theirs"
    changed["dashboard"]["panels"][0]["title"] = "another"
    _, of = bring(tmp_path, plan)
    assert "wrote dashboard 'techpulse: job'" in said(of)
    assert grafana.written == [*before, "/api/dashboards/db"]
    after = grafana.boards["meks-techpulse-job"]
    assert after["meta"]["folderUid"] == "theirs"
    assert after["dashboard"]["panels"][0]["title"] == "Step"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda kubernetes, _: setattr(kubernetes, "token", "glsa_old"), "with 401"),
        (lambda _, grafana: setattr(grafana, "role", "Viewer"), "the role Editor"),
        (lambda _, grafana: setattr(grafana, "redirects_to", "http://127.0.0.1:1/"), "no other"),
        (lambda _, grafana: setattr(grafana, "answer", lambda *_: (502, None)), "with 502"),
        (lambda _, grafana: setattr(grafana, "answer", lambda *_: (200, "<html>")), "itself"),
    ],
    ids=["token", "role", "redirect", "proxy", "page"],
)
def test_what_keeps_them_out_is_told(tmp_path, grafana, change, told):
    """With what to do about it, and never with the token."""
    kubernetes = Kubernetes()
    change(kubernetes, grafana)
    with pytest.raises(Failure) as failed:
        bring(tmp_path, plan_for(grafana.port), kubernetes=kubernetes)
    assert failed.value.finding == Code.GRAFANA
    assert told in str(failed.value)
    assert kubernetes.token not in str(failed.value)


def test_without_grafana_or_its_token(tmp_path):
    """No address that answers, no Secret, no file to put."""
    with pytest.raises(Failure, match="no answer: ") as failed:
        bring(tmp_path, plan_for(free_port()))
    assert failed.value.code == 5
    with pytest.raises(Failure, match="meks secret set other < FILE"):
        bring(tmp_path, plan_for(1, named="other"))
    with pytest.raises(Failure, match="no dashboards in "):
        watchers.bring(plan_for(1), Kubernetes(), tmp_path / "x", console(), only_diff=False)


def test_a_prometheus_that_says_nothing_is_a_warning(tmp_path, grafana):
    """The platform is there all the same; a Grafana is no Prometheus."""
    for url in (f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{grafana.port}"):
        grafana.answer = lambda *_: (200, {"data": {}})
        watched = Observability(prometheus_url=url)
        done, of = bring(tmp_path, replace(cluster(), observability=watched))
        assert (done, written(of)) == (0, "")
        assert "MEKS-0897" in said(of)
        assert f"{url} does not say which alerts it has" in said(of)
        assert json.loads((tmp_path / "dashboards" / "job.json").read_text())
