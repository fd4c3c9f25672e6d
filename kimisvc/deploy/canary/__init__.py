"""The canary: a short probe of an idle server, and what is kept of it."""
