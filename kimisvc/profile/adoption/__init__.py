"""What runs already, as a profile: a command line, a script or a unit of somebody's own.

Texts in, a profile's text out. `adopt` is the way in; the readers of shells
and units below it know nothing of profiles, and `draft` is what they fill.
No secret that is read leaves this package, not even into a message.
"""
