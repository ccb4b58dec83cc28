"""HTTP's bodies: what requests and answers hold, and how values become JSON."""
