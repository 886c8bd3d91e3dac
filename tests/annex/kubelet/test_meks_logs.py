"""`meks logs` and the step in `meks status`, from containers that really run."""

import os
import signal
import threading

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.diagnosis import report
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import diagnosis, logs, look
from megatron_eks.ops.kube import jobs as running
from tests import consoles, hostile
from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = pytest.mark.control_plane


@pytest.fixture
def read(cluster, console):
    """Return a function that prints logs and returns the lines."""

    def call(name, **options):
        console.stdout.truncate(0)
        console.stdout.seek(0)
        assert logs.run(cluster.client, cluster.plan, name, logs.Options(**options), console) == 0
        return console.stdout.getvalue().splitlines()

    return call


def printing(name, script):
    """Return a job of one pod that runs a shell script instead of training."""
    job = runs.job(name, 1, image=runs.SMALL)
    (pod,) = (each for each in jobs.pod_specs(job)[:1])
    (container,) = pod["containers"]
    container |= {"command": ["sh", "-c", script], "args": []}
    return job


@pytest.fixture
def follow(read, console):
    """Return a function that follows a job in the background, and one that counts its lines."""
    threads: list[threading.Thread] = []

    def begin(name):
        threads.append(threading.Thread(target=lambda: read(name, follow=True), daemon=True))
        threads[0].start()

    def wait(line, times=1):
        printed = console.stdout
        wait_for(line, lambda: printed.getvalue().splitlines().count(line) >= times, 60)

    yield begin, wait
    threads[0].join(60)
    assert not threads[0].is_alive()


def test_all_ranks_are_followed_through_a_restart_to_the_end(cluster, start, follow, console):
    """Each line once and with its rank, although every container starts twice."""
    begin, wait = follow
    run = start(runs.job("followed", 2, image=runs.SMALL))
    begin("followed")
    for rank in (0, 1):
        wait(f"[{rank}] rank {rank} of 2 starts")
    run.wait_for_step(after=2)
    master, _ = jobs.pods_of(cluster.client, run.job)
    (process,) = cluster.processes_of(master, "ranks.py")
    os.kill(process, signal.SIGKILL)
    for rank in (0, 1):
        wait(f"[{rank}] rank {rank} of 2 starts", times=2)
    run.finish()
    wait("[0] rank 0 has finished")
    assert console.stdout.getvalue().splitlines().count("[0] rank 0 of 2 starts") == 2


def test_containers_that_live_for_a_moment_are_followed_too(submit, follow, console):
    """What they said is asked of the container before."""
    begin, wait = follow
    # The first one is still there when somebody begins to look.
    script = (
        "file=/shared/cache/moment; [ -e $file ] || sleep 5; echo x >> $file; "
        "n=$(wc -l < $file); echo run $n; [ $n -ge 3 ]"
    )
    job = printing("moment", script)
    submit(job)
    begin("moment")
    wait("[0] run 3")
    assert console.stdout.getvalue().splitlines() == ["[0] run 1", "[0] run 2", "[0] run 3"]


def test_one_rank_and_the_container_before(cluster, start, read):
    """What the last one printed before it died is what people look for."""
    run = start(runs.job("one-rank", 2, image=runs.SMALL))
    run.wait_for_step(after=2)
    assert read("one-rank", rank=1) == ["[1] rank 1 of 2 starts"]
    master, _ = jobs.pods_of(cluster.client, run.job)
    (process,) = cluster.processes_of(master, "ranks.py")
    os.kill(process, signal.SIGKILL)
    run.wait_for_restart()
    assert read("one-rank", rank=0, previous=True) == ["[0] rank 0 of 2 starts"]
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, "Succeeded")


def test_bytes_that_no_terminal_shows_are_escaped(cluster, submit, read):
    """A log may hold anything; a bar that redraws itself is its last state."""
    script = r"printf 'a\377b\n'; printf '10%%\r20%%\n'; printf 'bell\007\n'"
    job = printing("escaped", script)
    submit(job)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    *_, bar, bell = read("escaped")
    assert (bar, bell) == ("[0] 20%", "[0] bell\\x07")


def octal(text):
    """Write a text for `printf` of a shell."""
    return "".join(f"\\{byte:03o}" for byte in text.encode())


def test_only_colours_reach_a_terminal(cluster, submit, read):
    """Followed or not, and of what the diagnosis quotes; every line is still there."""
    lines = [*hostile.CORPUS.values(), hostile.COLOURS, "RuntimeError: all is lost"]
    job = printing("acting", "".join(f"printf '{octal(text)}\\n'; " for text in lines))
    submit(job)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    for printed in (read("acting"), read("acting", follow=True)):
        text = "\n".join(printed)
        assert hostile.acting(text) == []
        assert f"[0] {hostile.COLOURS}" in printed
        assert "gone" in text
    found = diagnosis.of_job(cluster.client, cluster.plan, "acting", logs.Options())
    told = consoles.console()
    report(found, "table", told)
    assert hostile.acting(consoles.written(told)) == []


def test_a_line_that_is_redrawn_hides_none_after_it(cluster, submit, read):
    """What stands behind a carriage return is not the server's time."""
    job = printing(
        "redrawn", r"printf 'one\n10%%\rzzz\n'; sleep 1; printf 'two\n20%%\r30%%\n'; echo end"
    )
    submit(job)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    expected = [f"[0] {text}" for text in ("one", "zzz", "two", "30%", "end")]
    assert read("redrawn", follow=True) == read("redrawn") == expected


def test_the_last_lines_alone(cluster, submit, read):
    """Of each rank, counted by the kubelet."""
    job = printing("tail", "seq 1 100")
    submit(job)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    assert read("tail", tail=2) == ["[0] 99", "[0] 100"]


def test_the_step_is_read_from_the_log(cluster, submit):
    """Megatron prints it on its last rank."""
    line = "iteration       30/   10000 | elapsed time (ms): 5 | lm loss: 2.5E+00 | skipped: 0 |"
    job = printing("stepping", f"echo '{line}'; sleep 60")
    submit(job)
    jobs.wait_for_pods(cluster.client, job, 1, "Running")
    namespace = job["metadata"]["namespace"]

    def found():
        now = running.get(cluster.client, namespace, "stepping")
        ranks = running.ranks(now, running.pods_of(cluster.client, now))
        return look.newest_step(cluster.client, namespace, ranks)

    assert str(wait_for("a step", found)) == "30/10000, loss 2.5"


def test_a_job_without_pods_says_where_its_logs_are(cluster, submit, read):
    """On the file system they outlive the pods."""
    job = printing("podless", "true")
    submit(job)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    for pod in jobs.pods_of(cluster.client, job):
        cluster.force_delete(pod)
    with pytest.raises(Failure, match=r"MEKS-0734 podless has no pods.*/shared/logs/podless/"):
        read("podless")


def test_a_rank_that_is_not_there_is_named(cluster, submit, read):
    """With those that are."""
    job = printing("ranks", "true")
    submit(job)
    jobs.wait_for_pods(cluster.client, job, 1, "Succeeded")
    with pytest.raises(Failure, match="ranks has no rank 7 - ranks are 0 to 0"):
        read("ranks", rank=7)
