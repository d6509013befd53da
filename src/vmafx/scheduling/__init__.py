"""Which job runs on which node, and when. Pure and in memory: no I/O and no clock.

    requirements.py  what a job requires and what a node offers, both read from API objects
    scheduler.py     the scheduler: takes the next job, gives it the best node, says why the others wait
    group.py         the waiting jobs with equal requirements, and the nodes that fit them
    indexes.py       sets by key, and sets ordered by rank
    durations.py     how long jobs take, from those that finished
    forecast.py      the scheduler run ahead of time: position, start and end of each waiting job

Cost of a placement, or of a job that is added or removed: logarithmic in jobs and nodes, and linear in the number of
groups that the node fits. Groups that select labels which the node lacks cost nothing, nor do excluded nodes, unless
the first jobs of a group exclude all free nodes. The first job of a new group visits every node with the labels that it
selects. Why jobs wait is computed once per group, and again when one of its nodes changes. Memory grows with
the jobs and nodes that exist, not with their history. The result does not depend on the order in which jobs and nodes
were added, so a restart changes nothing.
"""
