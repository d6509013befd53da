"""A small controller-runtime: what every reconciler needs. Nothing here knows a vmafx kind.

store.py        objects by key, with indexes: one writer, readers never copy
informer.py     keeps a store equal to the API server: list, watch, relist
workqueue.py    keys waiting to be reconciled, with delays and rate limits
reconcile.py    the reconcile loop: workers that take keys from a queue and reconcile them
status.py       status writes, known to their writer before the cache shows them
conditions.py   the conditions of a status; pure
children.py     objects created for an owner: applied, kept as declared, pruned
child.py        a child as the cache keeps it, and its owner
declaration.py  compares the declaration of a child with the live object; pure
leader.py       leader election on a Lease
events.py       the event recorder, for `kubectl describe`
manager.py      starts and stops informers, reconcile loops and background tasks in order
metrics.py      metrics with controller-runtime's names
role.py         runs a role as a process: signals, logs and exit code
"""
