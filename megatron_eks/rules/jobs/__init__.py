"""Rules over training jobs: how ranks start, meet, read, write and end."""
