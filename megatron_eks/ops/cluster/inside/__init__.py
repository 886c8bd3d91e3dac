"""What `meks preflight` looks at inside a cluster: facts are read first, and judged apart."""
