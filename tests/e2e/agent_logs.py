"""The logs of all agents of a release, also of those whose container or Pod is gone: read from the files of the nodes.

The kubelet deletes the log of a container with it; an open file can still be read to its end.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import TextIO, get_args

from tests.support.machines import AgentLogEntry, What


class AgentLogs:
    """`poll` has to be called more often than containers come and go."""

    def __init__(self, folders: list[Path], namespace: str) -> None:
        self._folders, self._namespace = folders, namespace
        self._files: dict[Path, TextIO] = {}
        self._partial: dict[Path, str] = {}
        self.entries: list[AgentLogEntry] = []

    def poll(self) -> None:
        """Read what was logged since."""
        for folder in self._folders:
            for path in folder.glob(f"pods/{self._namespace}_*/agent/*.log"):
                if path not in self._files:
                    with suppress(FileNotFoundError):
                        self._files[path] = path.open()
        for path, file in self._files.items():
            *lines, self._partial[path] = (self._partial.get(path, "") + file.read()).split("\n")
            pod = path.parent.parent.name.split("_")[1]  # NAMESPACE_NAME_UID
            for line in lines:
                self._add(pod, line.split(" ", 3)[3])  # TIME STREAM F TEXT

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _add(self, agent: str, text: str) -> None:
        try:
            line = json.loads(text)
        except ValueError:
            return
        if line["msg"] in get_args(What):
            self.entries.append(AgentLogEntry(agent, line["attempt"], line["msg"], line.get("score")))
