"""The commands that talk to Kubernetes; clients and streams are handed in."""
