"""The archive: a topic's records in the lake, raw, typed and by key, and one view of all."""
