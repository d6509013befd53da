"""Which job goes to which node: pure and in memory. No I/O, no clock, no Kubernetes.

    terms.py      what a job asks for, what a node offers, and which backend runs on whose GPU
    reading.py    jobs and nodes of the API, in these terms
    ranking.py    things by their rank, the least first
    buckets.py    things that are found by a key that many share
    group.py      jobs that the same nodes fit, in their order, and those nodes, the best first
    scheduler.py  all groups: takes the next job, gives it the best node, and tells the others why they wait
    durations.py  how long jobs take, by those that ended
    forecast.py   the scheduler run ahead: the position of a job, when it starts, when it is done
    prospects.py  jobs of the API, as the forecast wants them

A decision, and a job that comes or ends, take time that grows with the logarithm of jobs and nodes, and with the number
of different terms that the node fits. Terms that ask for labels it does not have cost nothing; nor do the nodes that
jobs avoid, except those of jobs that come first and avoid all that is free. The first job of terms
looks at every node with the labels it asks for. Why a job waits is worked out once for all jobs of its terms, and again
when such a node changes. What is kept grows with the jobs and nodes there are, not with what happened to them. The same
jobs and nodes give the same answer, in whatever order they came: so a restart changes nothing.
"""
