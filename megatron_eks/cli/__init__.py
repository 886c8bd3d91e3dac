"""The command line `meks`: one module for each panel of its help."""
