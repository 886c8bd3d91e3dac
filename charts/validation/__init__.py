"""Checks that run in the cluster and train nothing."""
