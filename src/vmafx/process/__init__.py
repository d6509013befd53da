"""Child processes: started without a shell, and ended with everything they started, whatever happens to us.

    child.py   a command run to its end, its output read within bounds
    tether.py  a command that does not outlive its parent; run as a script

What the children do is not known here.
"""
