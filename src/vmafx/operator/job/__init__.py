"""VmafxJob: from Pending to its end, with one writer.

cache.py       what is kept in memory: unfinished jobs, their Pods, the nodes
decide.py      what to do about a job, from what is known of it and its Pod; pure
foreign.py     the same for a job that another controller has; pure
status.py      what is written while a job waits and when it is placed; pure (its ends: vmafx.lifecycle)
pod.py         the Pod of an attempt; pure. podview.py: as the cache keeps it
reconciler.py  puts it together: looks, decides, writes
placing.py     the scheduler, kept in step with the caches
making.py      makes Pods, and knows what is in their way
following.py   asks other controllers after their jobs, by asking.py
finished.py    deletes jobs whose time is up. tally.py counts those that ended
counting.py    how many jobs each node has. metrics.py: what the fleet does, in numbers
rbac.py        what all this may do
"""
