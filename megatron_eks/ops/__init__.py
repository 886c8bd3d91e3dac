"""The commands of `meks`, one file each."""
