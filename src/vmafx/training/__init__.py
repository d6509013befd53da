"""Online training of a model on the scores of a fleet: samples, learning, checkpoints, publishing.

A library: it knows no Kubernetes. trainer/ runs it as a process.

    online.py          OnlineTraining: takes samples, learns from them, writes versions of the model
    config.py          what to train and how, as a trainer is given it
    address.py         where trainers are
    status.py          what a trainer reports about its training

    samples.py         the samples of one attempt, as workers send and trainers store them
    human_scores.py    the human scores of jobs
    teacher.py         whose scores are learned, and which of them are plausible
    exclusion.py       nodes whose samples are refused
    sample_log.py      samples and human scores on disk, in the order of their arrival
    saved_training.py  the state of a training that a snapshot has
    snapshots.py       its snapshots on disk
    versions.py        the versions of the model, on disk
    registry.py        pushes versions to an OCI registry

    distillation.py    the network that a training starts from, fitted to a base model
    network.py         the network in training: parameters, predictions, gradient, normalisation of features
    learner.py         Learner: online SGD with averaged weights; checkpoints and rollbacks of its state
    learner_state.py   the state of a Learner, and its encoding
    shuffle_buffer.py  mixes the samples of several clips
    targets.py         what to learn from samples: the teacher's scores, or those of people
    held_out.py        samples that are never trained on, and the quality of a model on them
    divergence.py      detects that training makes a model worse
"""
