"""Jobs whose iterations share the devices of a cluster, and the gangs that they are compared with."""
