"""The rollup: a topic of metrics becomes aggregates by the minute, 5 minutes and hour."""
