"""Jobs and the nodes that they run on: commands of the panel Jobs."""
