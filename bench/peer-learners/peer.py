"""One contestant of the benchmark of training, in a process of its own: `peer.py FILE CONTESTANT BATCH_SIZE`.

FILE has the arrays of a stream of samples. The stream is learned in calls of BATCH_SIZE samples, and the CPU seconds
that this took are printed. scikit-learn and River get features that are normalised already, since their linear models
do not work well on others; ours gets them as they come.
"""

import sys
import time
import warnings

import numpy as np

NAMES = ("adm2", "motion2", "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3")


def vmafx(stream, size):
    from vmafx.scoring.learned import decode_model
    from vmafx.training.config import TrainingConfig
    from vmafx.training.distillation import StartingModel
    from vmafx.training.learner import Learner

    config = TrainingConfig(name="bench", namespace="default", base_model="vmaf_v0.6.1", batch_size=size)
    learner = Learner(StartingModel(decode_model(stream["model"].tobytes(), "model")), config)
    features, targets, weights = stream["features"], stream["targets"], stream["weights"]

    def learn(rows):
        learner.learn(features[rows], targets[rows], weights[rows])

    return learn


def scikit_learn(stream, size):
    from sklearn.linear_model import SGDRegressor

    model = SGDRegressor(learning_rate="constant", eta0=0.001)
    features, targets, weights = stream["normalised"], stream["targets"] / 100, stream["weights"]

    def learn(rows):
        model.partial_fit(features[rows], targets[rows], sample_weight=weights[rows])

    return learn


def river_one(stream, size):
    """Dictionaries are made before: their cost is not River's."""
    from river import linear_model, optim

    model = linear_model.LinearRegression(optim.SGD(0.001))
    rows_as_dicts = [dict(zip(NAMES, row, strict=True)) for row in stream["normalised"].tolist()]
    targets = (stream["targets"] / 100).tolist()

    def learn(rows):
        for features, target in zip(rows_as_dicts[rows], targets[rows], strict=True):
            model.learn_one(features, target)

    return learn


def river_many(stream, size):
    """Data frames are made before."""
    import pandas
    from river import linear_model, optim

    model = linear_model.LinearRegression(optim.SGD(0.001))
    features, targets = pandas.DataFrame(stream["normalised"], columns=NAMES), pandas.Series(stream["targets"] / 100)
    batches = {
        begin: (features.iloc[begin : begin + size], targets.iloc[begin : begin + size])
        for begin in range(0, len(targets), size)
    }

    def learn(rows):
        model.learn_many(*batches[rows.start])

    return learn


CONTESTANTS = {
    "vmafx": vmafx,
    "scikit-learn": scikit_learn,
    "river, one by one": river_one,
    "river, learn_many": river_many,
}


def main():
    file, contestant, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    warnings.simplefilter("ignore")
    stream = dict(np.load(file))
    learn, count = CONTESTANTS[contestant](stream, size), len(stream["targets"])
    learn(slice(0, size))  # the first call initialises
    began = time.process_time()
    for begin in range(size, count - size + 1, size):
        learn(slice(begin, begin + size))
    print(time.process_time() - began)


main()
