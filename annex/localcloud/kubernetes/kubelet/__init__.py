"""A kubelet whose containers are processes of this machine, in namespaces of their own."""
