"""`vmafx agent`: scores jobs on a machine outside the cluster.

It registers a VmafxNode, pulls jobs, runs a worker for each and reports the results. It talks only to the controller;
nothing here uses the Kubernetes API.

    main.py             the process: device and speed, state folder, signals, exit codes
    settings.py         flags and environment variables
    agent.py            the loops: heartbeats, pulls, results; the attempts that the agent holds
    registration.py     keeps the agent registered
    controller_link.py  calls to the controller, their messages and errors
    spool.py            finished results, on disk until the controller has them
    samples.py          samples for trainings, on disk until the controller has them, and the loop that pushes them
"""
