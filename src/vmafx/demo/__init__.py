"""`vmafx demo`: encodes a clip six ways, scores the encodes with a local control plane and one agent, plots the scores.

The roles run as child processes, started by their command lines; nothing here imports one. reports/ draws the chart.

    main.py      the steps in order, and the clean-up
    clips.py     the reference clip and its encodes, made by one ffmpeg
    cluster.py   the cluster: control plane, operator, controller, agent
    roles.py     roles as child processes
    jobs.py      a VmafxJob per encode: manifest, `kubectl apply`, live table, scores
    training.py  the demo of a training: rounds of jobs, versions of the model, scores with them
    trainer.py   the trainer's Pod as a process
    serve.py     the demo of the scoring server: two clips, the page, a request
    progress.py  progress output, DemoError, paths
"""
