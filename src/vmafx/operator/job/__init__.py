"""VmafxJob: placed on a node, run as a Pod or by an agent, retried, and finished.

The operator is the only writer of a job's status, except for what an agent's attempt reports through the controller.
A reconciliation gathers what is known, decides the next step, and carries it out.

kind.py           what the kind declares: permissions, reasons, set-up
settings.py       settings for jobs
reconciler.py     the reconciler: gather, decide, act; and what triggers it
gather.py         what is known about a job, from caches, scheduler, external controllers and memory
memory.py         what this process remembers about a job beyond its status
decide.py         the next step for a job; pure
steps.py          the steps that can be decided
status.py         the status patches for waiting, placed and mirrored jobs; pure
placement.py      the scheduler, kept up to date with the caches
wait_reporter.py  writes to jobs why they wait
pod.py            the manifest of a worker Pod; pure
pod_cache.py      worker Pods as they are cached
pod_creator.py    creates an attempt's Pod, or says what prevents it
samples.py        variables that let a worker Pod push samples for trainings
external/         jobs that an external controller runs
ttl.py            deletes finished jobs after their TTL
counts.py         job counts: node status, metrics
"""
