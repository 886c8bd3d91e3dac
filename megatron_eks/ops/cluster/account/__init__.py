"""What `meks preflight` looks at in an account."""
