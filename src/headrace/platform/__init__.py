"""The ports, made real: disks, clock, entropy."""
