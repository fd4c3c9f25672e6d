"""`Profile` and templates to the texts of systemd units. Pure: no file, no clock, no host."""
