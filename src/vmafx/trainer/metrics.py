"""The metrics of a trainer, read from its status at a scrape."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vmafx.training.status import TrainerStatus


class TrainerMetrics(Collector):
    """All metrics are present from the start; a quality that is not known yet is NaN."""

    def __init__(self, status: Callable[[], TrainerStatus]) -> None:
        self._status = status
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        latest = status.checkpoints[-1] if status.checkpoints else None
        counters = {
            "samples": ("Samples used for training.", status.samples),
            "rollbacks": ("Divergences of the training.", status.rollbacks),
            "damaged": ("Stored records and checkpoints that were damaged.", status.damaged),
            "checkpoints": ("Versions of the model.", latest.number if latest is not None else 0),
        }
        gauges: dict[str, tuple[str, float | None]] = {
            "pending_samples": ("Samples stored, but not used yet.", status.pending),
            "held_out_samples": ("Samples that the quality is measured on.", status.held_out),
            "loss": ("Mean squared error on the held-out samples.", status.quality.loss),
            "pearson": ("Pearson correlation on the held-out samples.", status.quality.pearson),
            "spearman": ("Spearman correlation on the held-out samples.", status.quality.spearman),
            "learning_rate": ("Learning rate in force.", status.learning_rate),
            "stale": ("1 if no samples have come for a while.", status.stale),
            "unpushed_checkpoints": (
                "Versions that are not in the registry yet.", sum(not one.pushed for one in status.checkpoints),
            ),
            "excluded_nodes": ("Nodes whose samples are refused.", len(status.excluded_nodes)),
        }  # fmt: skip
        for name, (text, count) in counters.items():
            yield CounterMetricFamily(f"vmafx_trainer_{name}", text, count)
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"vmafx_trainer_{name}", text, float("nan") if value is None else value)
