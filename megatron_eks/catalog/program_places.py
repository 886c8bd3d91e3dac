"""Where the programs that containers run are."""

PACKAGE = "megatron_eks.programs"
"""What `python3 -m` and `torchrun -m` find in the images."""

ZIP = "programs.zip"
"""The programs among the files of a job whose image is the user's: `python3 ZIP PROGRAM`."""

UNPACKED = "/opt/megatron-eks/packages"
"""The same in our images, where Python starts a folder as it starts a zip."""
