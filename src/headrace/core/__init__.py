"""Values that every layer shares: errors, limits, settings, ports."""
