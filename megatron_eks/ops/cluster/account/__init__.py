"""What `meks preflight` looks at in an account: facts are read first, and judged apart."""
