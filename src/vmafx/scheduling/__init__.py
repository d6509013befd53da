"""Which job goes to which node: pure and in memory. No I/O, no clock, no Kubernetes.

    terms.py      what a job asks for, what a node offers, and which backend runs on whose GPU
    reading.py    jobs and nodes of the API, in these terms
    standing.py   whether a pending job is in the queue, or held back
    group.py      jobs that ask for the same, in their order, and the nodes that fit them, the best first
    scheduler.py  all groups: takes the next job, gives it the best node, and tells the others why they wait
    durations.py  how long jobs take, by those that ended
    forecast.py   the scheduler run ahead: which in turn a job is, when it starts, when it is done
    prospects.py  jobs of the API, as the forecast wants them

Each decision takes time that grows with the logarithm of jobs and nodes, and with the number of different terms. The
same jobs and nodes give the same answer, in whatever order they came: so a restart changes nothing.
"""
