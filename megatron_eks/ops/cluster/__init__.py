"""A cluster from its account's check to its end: commands of the panel Cluster."""
