"""A learned model as an OCI artifact: a manifest that names the model and its metadata by their digests.

The digest of the manifest identifies a version of a model. Bytes are deterministic: the same version always has the
same digest.
"""

import hashlib
import re

import msgspec

from vmafx.scoring.errors import BadInput

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.vmafx.model.v1"
CONFIG_TYPE = "application/vnd.vmafx.model.config.v1+json"
MODEL_TYPE = "application/vnd.vmafx.model.v1+json"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_MANIFEST_BYTES = 64 << 10
MAX_BLOB_BYTES = 1 << 20


class Descriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A blob by its digest."""

    mediaType: str
    digest: str
    size: int
    annotations: dict[str, str] = {}


class ModelManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a version: `config` is its metadata, the only layer the model."""

    schemaVersion: int = 2
    mediaType: str = MANIFEST_TYPE
    artifactType: str = ARTIFACT_TYPE
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}


class ModelArtifact(msgspec.Struct, frozen=True):
    """The blobs of a version and its manifest."""

    manifest: bytes
    config: bytes
    model: bytes

    @property
    def digest(self) -> str:
        """What identifies the version."""
        return digest_of(self.manifest)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def make_artifact(config: bytes, model: bytes, created: str) -> ModelArtifact:
    """`created` is a time in RFC 3339. The title makes `oras pull` write the model to a file of this name."""
    manifest = ModelManifest(
        config=Descriptor(CONFIG_TYPE, digest_of(config), len(config)),
        layers=(
            Descriptor(MODEL_TYPE, digest_of(model), len(model), {"org.opencontainers.image.title": "model.json"}),
        ),
        annotations={"org.opencontainers.image.created": created},
    )
    return ModelArtifact(msgspec.json.encode(manifest), config, model)


def decode_manifest(content: bytes, name: str) -> ModelManifest:
    """Raises BadInput unless the content is the manifest of a learned model."""
    try:
        manifest = msgspec.json.decode(content, type=ModelManifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("model", f"{name} is not an OCI artifact: {error}") from error
    kinds = [layer.mediaType for layer in manifest.layers]
    if manifest.artifactType != ARTIFACT_TYPE or kinds != [MODEL_TYPE]:
        raise BadInput("model", f"{name} is not a learned model: its artifactType is not {ARTIFACT_TYPE}")
    (layer,) = manifest.layers
    if not _DIGEST.fullmatch(layer.digest):
        raise BadInput("model", f"{name} names its model by another digest than SHA-256")
    if not 0 < layer.size <= MAX_BLOB_BYTES:
        raise BadInput("model", f"{name} has a model of {layer.size} bytes; the limit is {MAX_BLOB_BYTES}")
    return manifest


def is_intact(artifact: ModelArtifact, digest: str) -> bool:
    """Whether the artifact has this digest, and its blobs those of its manifest."""
    if artifact.digest != digest:
        return False
    manifest = decode_manifest(artifact.manifest, digest)
    blobs = (manifest.config.digest, manifest.layers[0].digest)
    return blobs == (digest_of(artifact.config), digest_of(artifact.model))
