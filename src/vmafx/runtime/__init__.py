"""A small controller-runtime: what every controller stands on, and nothing that knows our kinds.

store.py       objects by key, with indexes; one writer, readers never copy
informer.py    keeps a store equal to the server: list, watch, list again
workqueue.py   keys waiting to be worked on
controller.py  workers that take keys and reconcile them
status.py      writes a status once, and knows its own writes before the cache does
conditions.py  the conditions of a status; pure
children.py    objects made for an owner: applied, kept as wanted, pruned
leader.py      at most one of several processes acts
events.py      what happened, for `kubectl describe`
manager.py     starts all of it in order, and stops it in reverse
metrics.py     controller-runtime's metrics, by its names
role.py        a role as a process: its signals, and how it ends
unless.py      work that is given up when something else happens
"""
