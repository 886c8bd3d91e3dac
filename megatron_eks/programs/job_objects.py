"""Keeps what Kubernetes says of jobs beside their logs, for when it does not know them any more.

job_objects.py --namespace NAMESPACE --volumes DIR --jobs KIND=GROUP/VERSION/PLURAL...

Runs once in a cluster, as a pod that may read a namespace, nodes and their events. Of each job
there it writes DIR/CLAIM/logs/JOB/objects-UID.json, CLAIM being the job's own: {"job": the job,
"pods": every pod it has had, by uid, "events": those about the job, its pods, and their nodes while
they were there, by uid}, each as it was last seen. Of a job that becomes an object of another kind,
"made" is that one. Kubernetes forgets events within the hour, and pods with their ends as soon as
the operator or a lost node takes them. What a file already holds stays when this starts again.

Pods on lost nodes it takes away (`lost_pods`). It has the standard library alone: its image is
Python's own.
"""

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from megatron_eks.programs.cluster_api import Object, of_pod
from megatron_eks.programs.lost_pods import LostPods

_PATHS = (
    ("Pod", "/api/v1/namespaces/{}/pods?"),
    ("Event", "/api/v1/namespaces/{}/events?"),
    # Nodes have no namespace, and their events are in this one.
    ("Event", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DNode&"),
    ("Node", "/api/v1/nodes?"),
)
_METADATA = ("name", "namespace", "uid", "labels", "creationTimestamp", "ownerReferences")
_POD = ("nodeName", "initContainers", "containers")
# A file holds some seconds' changes; a job of a thousand pods makes thousands at once.
_WRITE_SECONDS = 2.0
_MOST_EVENTS, _MOST_WAITING = 1000, 5000
_ENDED, _STAMP = ("Succeeded", "Failed"), "%Y-%m-%dT%H:%M:%SZ"
_FORGET_SECONDS = 3600.0
# A node that goes takes its pods along, and is told of a little later.
_NODE_GONE_SECONDS = 600.0


class Record:
    """What is kept of one job."""

    def __init__(self, volumes: Path, job: Object) -> None:
        self._volumes = volumes
        self._file: Path | None = None
        self._place = "logs/{name}/objects-{uid}.json".format(**job["metadata"])
        self._content: Object = {"job": {}, "pods": {}, "events": {}}
        self._changed, self._gone, self._dirty = time.monotonic(), False, False
        # Until when events of a pod's node are the job's, for pods that are there no more.
        self._left: dict[str, float] = {}
        self._settle(job)

    def _settle(self, job: Object) -> None:
        """Take up the file that the job has, or what it has become."""
        claims = map(str, _values(job["spec"], "claimName"))
        claim = next((each for each in claims if (self._volumes / each).is_dir()), None)
        if self._file or not claim:
            return
        self._file = self._volumes / claim / self._place
        if self._file.exists():
            kept = json.loads(self._file.read_text())
            self._content = {key: {**kept[key], **new} for key, new in self._content.items()}
            # Those of the file are told anew if they live.
            self._left = {**dict.fromkeys(kept["pods"], time.time()), **self._left}

    def take(self, found: Object) -> None:
        """Keep an object instead of what was kept of it."""
        kept, uid = _kept(found), found["metadata"]["uid"]
        match found["kind"]:
            case "Event":
                events = _last(self._content["events"], _MOST_EVENTS)
                if events.get(uid) == kept:
                    return
                events[uid] = kept
            case "Pod":
                self._content["pods"][uid] = kept
                if "gone" in found or kept["status"].get("phase") in _ENDED:
                    self._left.setdefault(uid, time.time() + _NODE_GONE_SECONDS)
                else:
                    self._left.pop(uid, None)
            case _ if uid in self._place:
                self._content["job"] |= kept
                self._gone = "gone" in found
            case _ if "gone" not in found:
                self._settle(found)
                self._content["job"]["made"] = kept
        self._changed, self._dirty = time.monotonic(), True

    def was_on(self, node: str, when: str) -> bool:
        """Say whether a pod of the job was on a node at a time, as the API server writes it."""
        return any(
            each["spec"].get("nodeName") == node
            and each["metadata"]["creationTimestamp"] <= when
            and (
                uid not in self._left or when <= time.strftime(_STAMP, time.gmtime(self._left[uid]))
            )
            for uid, each in self._content["pods"].items()
        )

    def is_over(self) -> bool:
        """Say whether nothing more is to come."""
        quiet = time.monotonic() - self._changed > _FORGET_SECONDS
        return quiet and not self._dirty and (self._gone or not self._file)

    def write(self) -> None:
        """Write the file if something has changed. Raises OSError."""
        if self._dirty and self._file:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            days = self._file.with_name("keep-days")
            if not days.exists():
                # As its controller has it in seconds.
                seconds = next(_values(self._content["job"], "ttlSecondsAfterFinished"), 0)
                days.write_text(f"{max(1, int(seconds or 0) // (24 * 3600))}\n")
            partial = self._file.with_name(f".{self._file.name}")
            with open(partial, "w", opener=lambda path, how: os.open(path, how, 0o600)) as file:
                json.dump(self._content, file)
            partial.replace(self._file)
        self._dirty = False


class Records:
    """The records of all jobs, and what came before the job that it is about."""

    def __init__(self, volumes: Path) -> None:
        self._volumes = volumes
        self._of: dict[str, Record] = {}
        self._waiting: dict[str, dict[str, Object]] = {}

    def take(self, found: Object) -> None:
        """Keep an object in the record of its job."""
        kind, uid, about = found["kind"], found["metadata"]["uid"], _about(found)
        if kind == "Event" and found["involvedObject"]["kind"] == "Node":
            self._take_of_node(found)
            return
        if about == uid and uid not in self._of:
            self._of[uid] = Record(self._volumes, found)
        record = self._of.get(about)
        if record is None:
            self._wait(about, found)
            return
        # A Job that another kind of job has made tells nothing of its own: its pods are that one's.
        if kind != "Job" or about == uid:
            record.take(found)
        if kind != "Event":
            self._of[uid] = record
            for each in self._waiting.pop(uid, {}).values():
                self.take(each)
        if found["kind"] == "Pod" and (node := found["spec"].get("nodeName")):
            for each in list(self._waiting.get(node, {}).values()):
                self._take_of_node(each)

    def _take_of_node(self, event: Object) -> None:
        """Keep an event of a node in the records of all jobs that were there."""
        node = event["involvedObject"]["name"]
        for record in set(self._of.values()):
            if record.was_on(node, _when(event)):
                record.take(event)
        self._wait(node, event)

    def _wait(self, about: str, found: Object) -> None:
        """Keep an object for when that is known which it is about."""
        _last(self._waiting.setdefault(about, {}), _MOST_EVENTS)[found["metadata"]["uid"]] = found
        _last(self._waiting, _MOST_WAITING)

    def write(self) -> None:
        """Write what has changed; what a full or hanging file system does not take, later."""
        for record in set(self._of.values()):
            try:
                record.write()
            except OSError as problem:
                sys.stderr.write(f"{problem} - tried again\n")
        self._of = {uid: each for uid, each in self._of.items() if not each.is_over()}


def main() -> NoReturn:
    """Follow a namespace until told to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespace", required=True, help="of the jobs")
    parser.add_argument("--volumes", type=Path, required=True, help="file systems, by their claims")
    parser.add_argument("--jobs", action="append", required=True, help="a kind of jobs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    changes: queue.Queue[Object] = queue.Queue()
    api, records = of_pod(), Records(options.volumes)
    lost = LostPods(api)
    jobs = [each.split("=") for each in options.jobs]
    paths = [(kind, "/apis/{}/namespaces/{{}}/{}?".format(*at.rsplit("/", 1))) for kind, at in jobs]
    for kind, path in (*paths, *_PATHS):
        readers = {"Pod": (changes, lost.changes), "Node": (lost.changes,)}.get(kind, (changes,))
        given = kind, path.format(options.namespace), readers
        threading.Thread(target=api.follow, args=given, daemon=True).start()
    threading.Thread(target=lost.run, daemon=True).start()
    try:
        while True:
            time.sleep(_WRITE_SECONDS)
            while not changes.empty():
                records.take(changes.get())
            records.write()
    finally:
        records.write()


def _about(found: Object) -> str:
    """Return the uid of what an object belongs to; a job that nothing has made, its own."""
    if found["kind"] == "Event":
        return str(found["involvedObject"].get("uid", ""))
    owners = found["metadata"].get("ownerReferences") or ()
    own = "" if found["kind"] == "Pod" else found["metadata"]["uid"]
    return next((str(each["uid"]) for each in owners if each.get("controller")), own)


def _kept(found: Object) -> Object:
    """Return an object without what nobody reads, variables of pods above all."""
    kept = {key: each for key, each in found.items() if key not in {"metadata", "gone"}}
    metadata = found["metadata"]
    kept["metadata"] = {key: metadata[key] for key in _METADATA if key in metadata}
    if found["kind"] == "Pod":
        spec = {key: found["spec"][key] for key in _POD if key in found["spec"]}
        for key in {"initContainers", "containers"} & spec.keys():
            spec[key] = [{"name": each["name"]} for each in spec[key]]
        kept["spec"] = spec
    return kept


def _last(kept: dict[str, Any], most: int) -> dict[str, Any]:
    """Leave the newest of what is kept."""
    for oldest in list(kept)[:-most]:
        del kept[oldest]
    return kept


def _values(value: object, key: str) -> Iterator[Any]:
    """Find a key at any depth: kinds of jobs have it at places of their own."""
    if isinstance(value, list):
        for each in value:
            yield from _values(each, key)
    elif isinstance(value, dict):
        if key in value:
            yield value[key]
        for each in value.values():
            yield from _values(each, key)


def _when(event: Object) -> str:
    """Return when an event was seen last, in seconds of UTC as the API server writes them."""
    series = event.get("series") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return f"{found or event['metadata']['creationTimestamp']}"[:19] + "Z"


if __name__ == "__main__":
    main()
