"""What looks at a running service from outside. Only reads."""
