"""What the node counts while it works, and how others are told."""
