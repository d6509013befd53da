"""`vmafx worker`: the process that scores one attempt, writes its result to a file and exits.

It runs as a Pod's container or an agent's child process. It does not access Kubernetes; its only token is one to push
samples with, if there is a training.

    main.py     the process: its variables, its exit codes and the result file
    score.py    scores the attempt, reports progress and delivers the report
    samples.py  the samples of the attempt, for trainings: written to a file or pushed to the controller
"""
