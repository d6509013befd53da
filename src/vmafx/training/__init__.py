"""Online training of a model on the scores of a fleet: samples, learning, checkpoints, publishing.

A library: it knows no Kubernetes. trainer/ runs it as a process.

    samples.py     the samples of one attempt, as workers send and trainers store them
    sample_log.py  samples and human scores on disk, in the order of their arrival
    snapshots.py   the state of a training, on disk
    versions.py    the versions of the model, on disk
    registry.py    pushes versions to an OCI registry
    config.py      what to train and how, as a trainer is given it
    status.py      what a trainer reports about its training
"""
