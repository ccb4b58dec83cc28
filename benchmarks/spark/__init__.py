"""The Spark connector: topics to tables and back, each beside its ceiling."""
