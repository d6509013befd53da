"""Runs commands on the files of an image as Pods of the chart run them: as user 65532 without privileges, read-only."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

USER = "65532"
# In namespaces of its own, in which the network is empty and processes end with the first one.
# Arguments: the root, the folder for DATA if there is one, `--`, the command.
SCRIPT = """\
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero full random urandom; do
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
if [ "$1" != -- ]; then
  mkdir "$root/tmp/data"
  mount --bind -o ro "$1" "$root/tmp/data"
  shift
fi
shift
exec "$@"
"""
NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
UNPRIVILEGED = (
    "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
)  # fmt: skip
DATA = "/tmp/data"  # noqa: S108 - in the container


class Container:
    """The files of an image, and the variables of its configuration."""

    def __init__(self, root: Path, config: Mapping[str, Sequence[str]]) -> None:
        self.root, self._variables = root, config["Env"]

    def run(self, *command: str, data: Path | None = None, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command; the folder `data` is at DATA, /tmp is empty, everything else is read-only."""
        line = ["unshare", *NAMESPACES, "sh", "-c", SCRIPT, "sh", str(self.root), *([str(data)] if data else []), "--"]
        line += ["chroot", str(self.root), "setpriv", *UNPRIVILEGED, "env", "-i", *self._variables, *command]
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout, check=False)
