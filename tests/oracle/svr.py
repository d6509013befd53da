"""Features to a score: a nu-SVR with an RBF kernel, as LIBSVM trains and writes it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Svr:
    """A trained model: support vectors, their weights, and the width of the kernel."""

    gamma: float
    rho: float
    weights: NDArray[np.float64]
    vectors: NDArray[np.float64]

    def predict(self, features: NDArray[np.float64]) -> float:
        distances = ((self.vectors - features) ** 2).sum(axis=1)
        return float(self.weights @ np.exp(-self.gamma * distances) - self.rho)


def parse(text: str) -> Svr:
    """LIBSVM's own format: a header of `name value`, then after SV a line for each vector, `weight index:value ...`."""
    header, _, body = text.partition("\nSV\n")
    values = dict(line.split(maxsplit=1) for line in header.splitlines())
    if (values["svm_type"], values["kernel_type"]) != ("nu_svr", "rbf"):
        raise ValueError(f"not a nu-SVR with an RBF kernel: {values}")
    rows = [line.split() for line in body.splitlines() if line.strip()]
    entries = [[entry.split(":") for entry in row[1:]] for row in rows]
    vectors = np.zeros((len(rows), max(int(index) for row in entries for index, _ in row)))
    for vector, row in zip(vectors, entries, strict=True):
        for index, value in row:  # indexes start at one; missing values are zero
            vector[int(index) - 1] = float(value)
    weights = np.array([float(row[0]) for row in rows])
    return Svr(float(values["gamma"]), float(values["rho"]), weights, vectors)
