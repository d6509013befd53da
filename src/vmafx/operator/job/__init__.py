"""VmafxJob: from Pending to its end, with one writer.

kind.py        how the operator sets it up, what it may do, the reasons it gives; settings.py
reconciler.py  gather, decide, do
gather.py      what is known of a job: from the caches, the scheduler, other controllers, and memory.py
decide.py      what to do about it; pure. steps.py: the words for that
foreign.py     the same for a job that another controller has; pure
status.py      what is written while a job waits and when it is placed; pure (its ends: vmafx.jobs)
placing.py     the scheduler, kept in step with the caches
pods.py        creates Pods, and knows what is in their way
pod.py         the Pod of an attempt; pure. podview.py: as the cache (cache.py) keeps it
following.py   asks other controllers after their jobs, by asking.py
finished.py    deletes jobs whose time is up. tally.py counts those that ended
counting.py    how many jobs each node has. metrics.py: what the fleet does, in numbers
"""
