"""`meks status --watch` through servers that fail, and `now` by a server whose clock differs."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import ApiError, connect, wait_for
from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import watching
from megatron_eks.ops.jobs.watching import Options, View
from tests.kubernetes.answers import say


class Clock(SystemClock):
    """Waits for no time, and notes for how long it was told to."""

    def __init__(self):
        self.waits = []
        self.interrupt_after = 99

    def now(self):
        """Return the time."""
        return datetime.now(tz=UTC)

    def sleep(self, seconds):
        """Note a wait, or press Ctrl-C."""
        self.waits.append(seconds)
        if len(self.waits) > self.interrupt_after:
            raise KeyboardInterrupt


@pytest.fixture
def console():
    """Return a console that nobody sits at."""
    return Console(io.StringIO(), io.StringIO(), io.StringIO(), Clock())


@pytest.fixture
def watch(api, console):
    """Return a function that watches what a server answers, line by line, until it says end."""
    client = connect(api.url, api.authority, "token")

    def see():
        found = client.request("GET", "/state")
        lines = [str(each) for each in found["lines"]]
        return View(
            lines=lambda: lines,
            as_json=lambda: {"lines": [*lines]},
            ended="end" in lines,
        )

    def call(*answers, output="table"):
        api.answers = list(answers)
        return watching.show(client, see, Options(output, 5, "meks status x --watch"), console)

    yield call
    client.close()


def state(*lines):
    """Answer with lines."""
    return say(200, {"lines": lines})


def test_one_look_after_another(watch, console):
    """Until nothing more will change."""
    assert watch(state("a", "b"), state("a", "end")) == 0
    assert console.stdout.getvalue() == "a\nb\n\na\nend\n\n"
    assert console.clock.waits == [5]


def test_programs_get_a_line_of_json_at_each_look(watch, console):
    """Each is all of it."""
    assert watch(state("a", "b"), state("end"), output="json") == 0
    found = [json.loads(line) for line in console.stdout.getvalue().splitlines()]
    assert [each["lines"] for each in found] == [["a", "b"], ["end"]]


@pytest.mark.parametrize(
    ("status", "why"),
    [(401, "does not accept the credentials"), (410, "too old"), (500, "too old"), (503, "too")],
)
def test_what_passes_is_waited_for(watch, console, status, why):
    """Said once, however often it comes; then the watch goes on."""
    failing = say(status, {"message": "too old", "reason": "Expired"})
    assert watch(state("a"), failing, failing, failing, state("a", "end")) == 0
    assert console.stdout.getvalue().split() == ["a", "a", "end"]
    (said,) = console.stderr.getvalue().splitlines()
    assert said.startswith("no answer from https://127.0.0.1:")
    assert why in said
    assert said.endswith("; trying again")


def test_a_server_that_went_away_is_waited_for(watch, console):
    """Its connections end without an answer."""

    def cut(request):
        request.close_connection = True

    # A connection that was open already is tried anew once: two cuts are one failed look.
    assert watch(state("a"), cut, cut, state("end")) == 0
    assert console.stderr.getvalue().count("trying again") == 1


def test_what_does_not_pass_ends_it(watch):
    """Somebody who may not look, and a first look that fails, wait for nothing."""
    with pytest.raises(ApiError, match="no"):
        watch(state("a"), say(403, {"message": "no"}))
    with pytest.raises(ApiError, match="later"):
        watch(say(500, {"message": "later"}))


def test_a_job_that_is_gone_ends_it(console, api):
    """Its failure says what there is instead."""
    client = connect(api.url, api.authority, "token")
    looks = iter([View(list, dict, ended=False)])

    def see():
        try:
            return next(looks)
        except StopIteration:
            raise Failure(Code.JOB_NOT_FOUND, "no job 'x'", "there: y", exit_code=3) from None

    with pytest.raises(Failure, match="MEKS-0729"):
        watching.show(client, see, Options("table", 5), console)


def test_ctrl_c_says_how_to_come_back(watch, console):
    """What is watched goes on."""
    console.clock.interrupt_after = 2
    assert watch(state("a")) == 130
    assert console.stderr.getvalue().strip() == (
        "what runs goes on; to look again: meks status x --watch"
    )


@pytest.mark.parametrize("hours", [-26, 0, 3])
def test_ages_are_by_the_servers_clock(api, hours):
    """The times in objects are its own; this machine's clock has no say."""
    theirs = datetime.now(tz=UTC) + timedelta(hours=hours)

    def answer(request):
        request.date_time_string = lambda _=None: theirs.strftime("%a, %d %b %Y %H:%M:%S GMT")
        say(200, {})(request)

    api.answers = [answer]
    client = connect(api.url, api.authority, "token")
    client.request("GET", "/")
    assert abs(client.now() - theirs) < timedelta(seconds=30)
    client.close()


def test_a_server_without_a_clock(api):
    """Something in between may drop the header, or write nonsense."""
    client = connect(api.url, api.authority, "token")
    for text in ("", "yesterday", "Sun, 99 Nov 2026 13:00:00 GMT"):

        def answer(request, text=text):
            request.date_time_string = lambda _=None: text
            say(200, {})(request)

        api.answers = [answer]
        client.request("GET", "/")
        assert abs(client.now() - datetime.now(tz=UTC)) < timedelta(seconds=30)
    client.close()


def test_connections_do_not_pile_up(api):
    """Each look has threads of its own, and a watch of days has thousands of looks."""
    client = connect(api.url, api.authority, "token")
    api.answers = [say(200, {})]

    before = threading.active_count()
    for _ in range(10):
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(lambda _: client.request("GET", "/"), range(8)))
        client.close()
    # The server has a thread for each connection, which ends a moment after it.
    wait_for("the threads", lambda: threading.active_count() <= before + 2, 10)
