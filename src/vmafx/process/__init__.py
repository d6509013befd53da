"""Child processes that never outlive their parent, started without a shell.

What the children are for belongs to the callers.

    child.py   runs a command, with limited output and time, and kills its process group
    tether.py  ties the life of a command to its parent; run as a script
"""
