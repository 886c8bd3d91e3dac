"""Rules over any Kubernetes object: fields, relations, pods and where they run."""
