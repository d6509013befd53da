"""`vmafx worker`: the process that scores one attempt, writes its result to a file and exits.

It runs as a Pod's container or an agent's child process. It has no token and does not access Kubernetes.

    main.py   the process: its variables, its exit codes and the result file
    score.py  scores the attempt, reports progress and delivers the report
"""
