"""ServedModels: the models that requests can name. The first is the default, and is loaded before anything is served."""

from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.models import open_model
from vmafx.tasks import in_thread


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as clients see it."""

    name: str
    default: bool = False
    learned: bool = False
    base: str = ""  # of a learned model
    digest: str = ""  # of a model that is a file


class ServedModels:
    """The model of the server, the built-in ones, and those in VMAFX_MODEL_DIR.

    Requests name no other models: libvmaf reads them in a process that is not confined. `fetching` is the policy for
    the default model, which the owner of the server chose; `policy` is that of requests.
    """

    def __init__(self, default: str, policy: MediaPolicy, fetching: MediaPolicy) -> None:
        self._default, self._policy, self._fetching = default, policy, fetching
        self.default_name = display_name(default)
        self._names = {self.default_name: default}
        self.default_info: ModelInfo | None = None  # once it is loaded

    async def load(self, folder: Path) -> None:
        """Load the default model; one with a URI is fetched into the folder. Raises ScoringError."""
        if "/" in self._default:
            self._names[self.default_name] = await self._fetch(folder)
        async with open_model(self._names[self.default_name], self._policy) as model:
            self.default_info = ModelInfo(
                self.default_name,
                default=True,
                learned=model.learned is not None,
                base=model.learned.base if model.learned is not None else "",
                digest=model.identity.partition(" ")[0] if model.identity.startswith("sha256:") else "",
            )

    async def _fetch(self, folder: Path) -> str:
        async with open_media(self._default, "model", self._fetching) as opened:
            content = await in_thread(Path(f"/proc/self/fd/{opened.fd}").read_bytes)
        path = folder / "model.json"
        await in_thread(write_atomic, path, content)
        return str(path)

    def choose(self, name: str) -> str:
        """The model that a request names, as the scorer opens it. Raises BadInput if it is not served."""
        if not name:
            return next(iter(self._names.values()))
        known = {**{one: one for one in (*BUILT_IN_MODELS, *self._in_folder())}, **self._names}
        if name not in known:
            raise BadInput("model", f"{name[:100]!r} is not served; /v1/models lists the models")
        return known[name]

    def listed(self) -> list[ModelInfo]:
        first = self.default_info or ModelInfo(self.default_name, default=True)
        others = dict.fromkeys((*BUILT_IN_MODELS, *self._in_folder()))
        return [first, *(ModelInfo(name) for name in others if name != first.name)]

    def _in_folder(self) -> list[str]:
        folder = self._policy.model_dir
        return sorted(path.stem for path in folder.glob("*.json")) if folder is not None else []
