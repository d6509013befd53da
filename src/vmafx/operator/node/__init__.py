"""VmafxNode: whether it is healthy, and when it is given up.

kind.py        how the operator sets it up, what it may do, the reasons it gives; settings.py
reconciler.py  gather, decide, do
probes.py      what each namespace's controller answers
decide.py      what the status should say; pure
"""
