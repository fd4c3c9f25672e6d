"""TOML to a validated `Profile`, or all problems at once. Reads only the files it is given."""
