"""What `meks dev` sends into its pod."""

import subprocess

from megatron_eks.ops.jobs.dev import words_of
from megatron_eks.plan.jobs.dev import DEV_CODE


def test_a_command_starts_in_the_folder_of_the_code(tmp_path):
    """As the shell does, with its words as they were typed, and its exit code."""

    def ran(*command, given=None):
        words = [word.replace(DEV_CODE, str(tmp_path)) for word in words_of(command)]
        done = subprocess.run(  # noqa: S603 -- our own words
            words, input=given, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    script = 'pwd; printf "%s|" "$@"; exit 3'
    assert ran("sh", "-c", script, "sh", "a b", "$HOME") == (3, f"{tmp_path}\na b|$HOME|")
    assert ran(given="pwd\n") == (0, f"{tmp_path}\n")
