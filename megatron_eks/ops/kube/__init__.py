"""The way to Kubernetes: access, objects, pods; clients are handed in."""
