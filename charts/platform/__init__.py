"""What runs in the cluster before any job, one file a component."""
