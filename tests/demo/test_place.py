"""What a demo starts, it knows, whenever somebody presses Ctrl-C."""

import os
import signal
import subprocess

import pytest

from megatron_eks.demo.place import Place


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_while_a_command_starts_leaves_it_known(monkeypatch, tmp_path, number):
    """It is told once the command can be ended, and what came before hears signals again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = Place()
    place.folder.mkdir(parents=True)
    started = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            started.append(self)
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        place.begin("sleep", "600")
    place.stop()
    assert [each.poll() for each in started] == [-signal.SIGKILL]
    assert signal.getsignal(number) == before
