"""Replay: records of a topic or of the lake, chosen and changed, back to a topic."""
