"""The embedded cluster of one machine: real programs on loopback, no account and no GPU."""
