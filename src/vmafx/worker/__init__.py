"""The process that does one job, as a Pod's container or as an agent's child: scores once, leaves its answer, ends.

    main.py      the process: what it is told by VMAFX_WORK, and what it leaves as termination message
    options.py   the variables that tell it
    score.py     one piece of work, from clips to an answer
    progress.py  how far it is, for people and for an agent

It has no token and knows nothing of Kubernetes but the file its answer goes to.
"""
