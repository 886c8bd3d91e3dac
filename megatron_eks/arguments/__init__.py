"""The arguments of `meks`, one module for each group of commands."""
