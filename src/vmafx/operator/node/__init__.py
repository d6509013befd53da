"""VmafxNode: its health, and the deletion of nodes whose agent is lost.

Jobs on a lost node are moved by the job reconciler, which reads the node's status.

kind.py        what the kind declares: permissions, reasons, set-up
settings.py    settings for nodes
reconciler.py  the reconciler: assess, write, delete; and what triggers it
probes.py      probes the controller of each namespace
decide.py      the health of a node, its status patch and its next check; pure
"""
