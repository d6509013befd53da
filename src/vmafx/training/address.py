"""Where trainers are: a setting of the controller, which sends them samples, and of the operator."""

from urllib.parse import urlsplit

from vmafx.settings import Setting
from vmafx.training.status import STATUS_PORT

SAMPLES_PATH, LABELS_PATH = "/v1/samples", "/v1/labels"  # of a trainer
DEFAULT_ADDRESS = f"http://vmafx-trainer-{{name}}.{{namespace}}.svc.cluster.local:{STATUS_PORT}"


def parse_trainer_address(text: str) -> str:
    """The address of trainers: an http or https URL."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{text!r} must be an http or https URL, such as {DEFAULT_ADDRESS}")
    return text.rstrip("/")


def trainer_url(address: str, namespace: str, name: str, path: str) -> str:
    """The URL of a path of one trainer."""
    return address.replace("{name}", name).replace("{namespace}", namespace) + path


TRAINER_ADDRESS = Setting(
    "HTTP address of trainers; {name} and {namespace} stand for those of the VmafxModelTraining.",
    default=DEFAULT_ADDRESS, variable="VMAFX_TRAINER_ADDR", parse=parse_trainer_address,
)  # fmt: skip
