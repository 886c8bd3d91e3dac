"""A Prometheus beside the control plane, which scrapes pods and judges them by somebody's rules."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from megatron_eks.localcloud.kubernetes.build import PROMETHEUS
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.processes import free_port, listens

_RELAY = "scraping"
_KEPT = "1d"


def start(plane: ControlPlane, program: Path, scraped: Path, rules: Path, holder: int) -> None:
    """Start it on a scrape configuration and a file of rules; `holder` has the pods' network."""
    folder = plane.folder / PROMETHEUS
    folder.mkdir()
    relay, port = free_port(), free_port()
    module = f"{__package__}.kubelet.{_RELAY}"
    plane.processes.start(
        _RELAY, sys.executable, "-m", module, str(holder), str(relay), cleans_up=False
    )
    plane.processes.wait(_RELAY, lambda: listens(relay))
    content: dict[str, Any] = yaml.safe_load(scraped.read_text())
    file = folder / "prometheus.yaml"
    found = configuration(content, plane.kubeconfig, f"http://127.0.0.1:{relay}")
    file.write_text(yaml.safe_dump({**found, "rule_files": [str(rules)]}, sort_keys=False))
    plane.processes.start(
        PROMETHEUS,
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={_KEPT}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    plane.ports[PROMETHEUS] = port
    plane.processes.wait(PROMETHEUS, lambda: listens(port))


def configuration(content: Mapping[str, Any], kubeconfig: Path, proxy: str) -> dict[str, Any]:
    """Return a scrape configuration for out here: how the API server and pods are reached."""
    jobs = [
        {
            **job,
            "proxy_url": proxy,
            "kubernetes_sd_configs": [
                {**each, "kubeconfig_file": str(kubeconfig)}
                for each in job["kubernetes_sd_configs"]
            ],
        }
        for job in content["scrape_configs"]
    ]
    return {**content, "scrape_configs": jobs}
