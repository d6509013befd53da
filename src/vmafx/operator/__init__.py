"""The operator: one folder per kind, all of one shape.

main.py     the process; start.py starts it lean
kinds.py    the kinds there are; kind.py: what each of them declares
context.py  what a kind is set up with, and the caches that several read
options.py  the settings of the process; rbac.py: its permissions
"""
