"""The archive: a topic's records in the lake, raw and typed, and one view of both."""
