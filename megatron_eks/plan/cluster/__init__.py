"""The plan of a cluster: each block of its file, with what is refused of it."""
