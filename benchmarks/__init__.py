"""Timings of the project, each against a baseline of the same run."""
