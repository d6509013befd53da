"""Child processes that never outlive their parent, started without a shell.

What the children are for belongs to the callers.

    child.py     runs a command, with limited output and time, and kills its process group
    tether.py    ties the life of a command to its parent; run as a script
    sandbox.py   locks the calling process in, before it reads an untrusted clip
    seccomp.py   the system calls that it keeps
    landlock.py  takes from it all files that it does not have open
"""
