"""What to write instead of a key or value that is refused."""
