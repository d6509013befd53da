"""VmafxModelTraining: its trainer and volume, kept as the spec asks for, and its status.

The trainer is a process of its own, which the operator reaches by HTTP; vmafx.training says what it reports.

kind.py          what the kind declares: permissions, reasons, set-up
settings.py      settings for trainings
reconciler.py    the reconciler: gather, decide, apply, write the status; and what triggers it
gather.py        what is live of a training
manifests.py     the children as Kubernetes manifests; pure
volume.py        the volume claim, which may outlive its training
trainers.py      reads the status of each trainer
decide.py        status and conditions of a training; pure
changes.py       the events that a new status causes; pure
human_scores.py  sends the scores that people gave to the trainers
"""
