"""CPU time and memory of processes, from /proc."""

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


def cpu_seconds(pid: int) -> float:
    """User and kernel time since the process started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int, field: str) -> float:
    """Resident memory: `field` is VmRSS for now, VmHWM for the peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field}")


def machine_seconds() -> float:
    """CPU time of all programs on this machine, including time stolen by other guests of its host."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Window:
    """CPU time since its creation: of the operator, of the servers, and of programs outside of the benchmark."""

    def __init__(self, operator: int, servers: list[int]) -> None:
        self._operator, self._servers = operator, servers
        self._started, self._before = time.perf_counter(), self._sample()
        self._servers_before = {pid: cpu_seconds(pid) for pid in servers}

    def operator_s(self) -> float:
        return self._sample()[0] - self._before[0]

    def servers_s(self) -> float:
        return sum(map(self.server_s, self._servers))

    def server_s(self, pid: int) -> float:
        """CPU time of one of the servers."""
        return cpu_seconds(pid) - self._servers_before[pid]

    def foreign_share(self) -> float:
        """CPU used by other programs, as a share of all cores."""
        operator, servers, driver, total = (now - then for now, then in zip(self._sample(), self._before, strict=True))
        return (total - operator - servers - driver) / (time.perf_counter() - self._started) / CORES

    def _sample(self) -> tuple[float, float, float, float]:
        servers = sum(map(cpu_seconds, self._servers))
        return cpu_seconds(self._operator), servers, cpu_seconds(os.getpid()), machine_seconds()
