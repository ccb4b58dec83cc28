"""The audit: proof that what was published to a topic has arrived in the lake."""
