"""What processes take, from /proc."""

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


def cpu_seconds(pid: int) -> float:
    """In user and kernel mode, since it began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int, field: str) -> float:
    """VmRSS: resident now; VmHWM: at most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field}")


def machine_seconds() -> float:
    """That all programs of the machine took, and other guests of its host."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Window:
    """What was taken from a moment on: by the operator, by the servers, and by programs beside the benchmark."""

    def __init__(self, operator: int, servers: list[int]) -> None:
        self._operator, self._servers = operator, servers
        self._began, self._before = time.perf_counter(), self._look()

    def operator_s(self) -> float:
        return self._look()[0] - self._before[0]

    def servers_s(self) -> float:
        return self._look()[1] - self._before[1]

    def foreign_share(self) -> float:
        """Of all the machine's cores."""
        operator, servers, us, all_ = (now - then for now, then in zip(self._look(), self._before, strict=True))
        return (all_ - operator - servers - us) / (time.perf_counter() - self._began) / CORES

    def _look(self) -> tuple[float, float, float, float]:
        servers = sum(map(cpu_seconds, self._servers))
        return cpu_seconds(self._operator), servers, cpu_seconds(os.getpid()), machine_seconds()
