"""Rules over what a cluster has beside its jobs: devices, storage, rights, queues, monitoring."""
