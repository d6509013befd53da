"""ServedModels: the models that requests can name. The default is loaded before anything is scored."""

from pathlib import Path
from typing import Annotated

import msgspec

from vmafx.api.fields import doc
from vmafx.atomic_write import write_atomic
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MODEL_DIR, MediaPolicy
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.models import MAX_MODEL_BYTES, open_model
from vmafx.tasks import in_thread


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as clients see it."""

    name: Annotated[str, doc("The name that requests give as `model`.")]
    default: Annotated[bool, doc("Whether requests that name no model get this one.")] = False
    learned: Annotated[bool, doc("Whether it is a model that a training has learned.")] = False
    base: Annotated[str, doc("The built-in model whose features a learned model uses.")] = ""
    digest: Annotated[str, doc("SHA-256 of the default model, if it is a file.")] = ""


class ModelList(msgspec.Struct, frozen=True):
    """The models that requests can name, the default first."""

    models: list[ModelInfo]


class ServedModels:
    """The model of the server, the built-in ones, and those in VMAFX_MODEL_DIR.

    Requests name no other models: libvmaf reads them in a process that is not confined. `fetching` is the policy for
    the default model, which the owner of the server chose; `policy` is that of requests. Raises BadInput if the
    default is the name of no model.
    """

    def __init__(self, default: str, policy: MediaPolicy, fetching: MediaPolicy) -> None:
        self._default, self._policy, self._fetching = default, policy, fetching
        self.default_name = display_name(default)
        self.default_info: ModelInfo | None = None  # once it is loaded
        self._fetched = ""  # path of the default model, if it was fetched
        if not self._is_uri and default not in self._by_name():
            known = ", ".join(self._by_name())
            raise BadInput(
                "model", f"there is no model {default!r}; use {known}, a path or URI, or set {MODEL_DIR} to its folder"
            )

    @property
    def _is_uri(self) -> bool:
        return "/" in self._default or self._default.endswith(".json")

    async def load(self, folder: Path) -> None:
        """Load the default model; one with a path or URI is copied to the folder. Raises ScoringError."""
        if self._is_uri:
            limited = msgspec.structs.replace(self._fetching, max_bytes=MAX_MODEL_BYTES)
            async with open_media(self._default, "model", limited) as opened:
                content = await in_thread(Path(f"/proc/self/fd/{opened.fd}").read_bytes)
            await in_thread(write_atomic, folder / "model.json", content)
            self._fetched = str(folder / "model.json")
        async with open_model(self.choose(""), self._policy) as model:
            self.default_info = ModelInfo(
                self.default_name,
                default=True,
                learned=model.learned is not None,
                base=model.learned.base if model.learned is not None else "",
                digest=model.identity.partition(" ")[0] if model.identity.startswith("sha256:") else "",
            )

    def choose(self, name: str) -> str:
        """The model that a request names, as the scorer opens it. Raises BadInput if it is not served."""
        if name in {"", self.default_name}:
            return self._fetched or self._default
        if name not in self._by_name():
            raise BadInput("model", f"{name[:100]!r} is not served; /v1/models lists the models")
        return name

    def shown_name(self, model: str) -> str:
        """The model of a result as clients know it, without folders of this server."""
        if model == self._fetched:
            return self.default_name
        folder, path = self._policy.model_dir, Path(model)
        return path.stem if folder is not None and path.parent == folder else model

    def is_fixed(self, name: str) -> bool:
        """Whether the model cannot change while this process runs; a file in VMAFX_MODEL_DIR can."""
        return name in BUILT_IN_MODELS or (name in {"", self.default_name} and self.choose("") not in self._in_folder())

    def listed(self) -> ModelList:
        first = self.default_info or ModelInfo(self.default_name, default=True)
        return ModelList([first, *(ModelInfo(name) for name in self._by_name() if name != first.name)])

    def _by_name(self) -> list[str]:
        return list(dict.fromkeys((*BUILT_IN_MODELS, *self._in_folder())))

    def _in_folder(self) -> list[str]:
        folder = self._policy.model_dir
        return sorted(path.stem for path in folder.glob("*.json")) if folder is not None else []
