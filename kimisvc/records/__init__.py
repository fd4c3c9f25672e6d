"""The frozen values and closed enums that travel the path from profile to verdict.

Read after `errors`, a module a subject. They import nothing of ours, do nothing, touch nothing.
"""
