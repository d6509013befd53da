"""Online training of a model on the scores of a fleet: samples, learning, checkpoints, publishing.

A library: it knows no Kubernetes. trainer/ runs it as a process.

    samples.py  the samples of one attempt, as workers send and trainers store them
    config.py   what to train and how, as a trainer is given it
    status.py   what a trainer reports about its training
"""
