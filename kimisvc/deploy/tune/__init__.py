"""The search for a profile: what was asked, what comes next, each start, and what is left in place."""
