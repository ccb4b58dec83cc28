"""Triage of dead letters: what failed, why, since when, and what to do about it."""
