"""The commands that talk to AWS; clients, prompts and clock are handed in."""
