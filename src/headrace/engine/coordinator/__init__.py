"""Group coordinators: who is in a group, and who reads which partition."""
