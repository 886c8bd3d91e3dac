"""The plan of every kind of job: a module a kind, and one table of them."""
