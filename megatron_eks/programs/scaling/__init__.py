"""Nodes of pools that jobs in queues bring, and that go when they have been idle."""
