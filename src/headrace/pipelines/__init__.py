"""Pipelines on Spark: topics become tables, and tables become topics."""
