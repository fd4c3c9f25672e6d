"""The doors, one module a world. Foreign errors are translated here, once, to KimisvcError."""
