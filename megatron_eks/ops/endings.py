"""How a command ends: its exit codes."""

DONE, FAILED, USAGE, NOT_FOUND, CHECK_FAILED, NOT_REACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
