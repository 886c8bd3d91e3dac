"""The whole life cycle on one machine, from an empty account to a resumed training: `make demo`."""
