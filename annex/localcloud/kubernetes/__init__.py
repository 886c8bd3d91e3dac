"""A real Kubernetes control plane and training operator, built from source, run as processes."""
