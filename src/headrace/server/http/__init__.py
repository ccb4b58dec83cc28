"""The HTTP door: JSON over the calls that every door shares."""
