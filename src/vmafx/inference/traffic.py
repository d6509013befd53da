"""How requests are split between the primary and the canary. Pure.

Without a gateway, a Service spreads requests evenly over all ready Pods, so the number of canary replicas makes the
split; with one, a route has the weights, and the canary needs replicas for its share of the load only.
"""

MAX_MISS = 5  # percentage points by which an achieved weight may differ from the wanted one
MAX_CANARY_REPLICAS = 100  # unless the primary has more: a weight of 99 would take 99 times the primary's replicas


def canary_replicas(primary: int, weight: int) -> int:
    """The number of canary replicas whose share of all replicas is nearest to `weight` percent; at least one.

    With 0, one replica is kept without requests; with 100, the canary takes the place of the primary.
    """
    primary = max(primary, 1)
    if weight == 0:
        return 1
    if weight == 100:
        return primary
    below = max(primary * weight // (100 - weight), 1)
    nearest = min((below, below + 1), key=lambda count: abs(100 * count / (primary + count) - weight))
    return min(nearest, max(MAX_CANARY_REPLICAS, primary))


def canary_share(primary: int, weight: int) -> int:
    """The number of canary replicas for `weight` percent of the load that `primary` replicas carry; at least one."""
    return max(-(-primary * weight // 100), 1)


def weight_in_force(wanted: int, current: int, ready: int, count: int, *, by_replicas: bool) -> int:
    """The weight that a canary gets now, with `ready` of `count` replicas ready.

    It is lowered at once, and raised when the canary can carry it: before, requests would fail or overload it.
    Where replicas make the split, only the last step to 100 needs to wait: not-ready Pods get no requests anyway.
    """
    if ready == 0:
        return 0
    if wanted <= current or ready >= count or (by_replicas and wanted < 100):
        return wanted
    return current


def achieved_weight(weight: int, primary_ready: int, canary_ready: int) -> int:
    """The percentage of requests that reach the canary if both tracks share a Service and `weight` is in force."""
    if canary_ready == 0:
        return 0
    if weight in {0, 100}:
        return weight
    return round(100 * canary_ready / (primary_ready + canary_ready))
