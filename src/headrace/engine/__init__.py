"""What messages mean, with no IO: time is an argument and effects are return values."""
