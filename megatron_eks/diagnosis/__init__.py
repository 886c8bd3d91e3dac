"""What ended a run, read from its logs: pure, and the same for a file and for a cluster."""
