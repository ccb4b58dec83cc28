"""The command line: `headrace <noun> <verb>`, one file per noun."""
