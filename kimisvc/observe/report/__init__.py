"""The report of one instance: its history as one page that needs nothing else, or as a few lines."""
