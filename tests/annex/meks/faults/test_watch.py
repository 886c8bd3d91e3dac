"""A watch that is cut, expires and is refused."""

import threading

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.kubernetes.watch import Watch
from tests.annex.fault_proxy import cut, drop, refuse
from tests.annex.meks.faults.world import MAPS, NAMESPACE

pytestmark = pytest.mark.control_plane


def test_a_watch_loses_nothing(proxy, client):
    """Cut streams, an expired version, a refused token: what there is in the end was told."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    told: dict[str, str] = {}
    stopped = threading.Event()

    def tell(change):
        metadata = change.manifest["metadata"]
        told[metadata["name"]] = "gone" if change.deleted else change.manifest["data"]["key"]

    def reached(name, value):
        wait_for(f"{name} to be {value}", lambda: told.get(name) == value, 30)

    def make(name, value):
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {"watched": "here"}}
        client.apply({**MAPS[0], "data": {"key": value}, "metadata": metadata})

    # By label: jobs of other tests leave and make ConfigMaps while this one watches.
    watch = Watch(proxy.client, path, {"labelSelector": "watched=here"})
    thread = threading.Thread(target=watch.follow, args=(tell, stopped), daemon=True)
    expired = (
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",'
        b'"metadata":{},"message":"too old resource version"}}\n'
    )

    def tell_expired(handler, _):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(expired)))
        handler.end_headers()
        handler.wfile.write(expired)

    faults = (cut(1), tell_expired, refuse(410, "Expired"), refuse(401, "Unauthorized"), drop)
    try:
        thread.start()
        for number, act in enumerate(faults):
            make(f"watched-{number}", "old")
            reached(f"watched-{number}", "old")
            with proxy.failing("GET", r"watch=true", act):
                # The stream that is open goes on; the next one meets the fault.
                proxy.cut_streams()
                make(f"watched-{number}", "new")
                reached(f"watched-{number}", "new")
        client.delete("v1", "ConfigMap", "watched-0", NAMESPACE)
        reached("watched-0", "gone")
        assert [told[f"watched-{number}"] for number in range(5)] == ["gone", *["new"] * 4]
    finally:
        stopped.set()
        proxy.cut_streams()
        thread.join(30)
        for number in range(len(faults)):
            client.delete("v1", "ConfigMap", f"watched-{number}", NAMESPACE, missing_ok=True)
