"""The commands: build the real doors, call one function, print, map errors to exit statuses."""
