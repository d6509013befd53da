"""What a person reads about the confinement of a process."""

import pytest

from vmafx.process.sandbox import Confinement


@pytest.mark.parametrize(
    ("confinement", "text"),
    [
        (Confinement(seccomp=True, landlock=7, limits=True), "seccomp, Landlock (ABI 7), limits"),
        (Confinement(seccomp=True, landlock=0, limits=True), "seccomp, limits: this system has no Landlock"),
        (Confinement(seccomp=False, landlock=1, limits=True), "Landlock (ABI 1), limits: this system has no seccomp"),
        (
            Confinement(seccomp=False, landlock=0, limits=True),
            "limits only: this system has no seccomp and no Landlock",
        ),
        (Confinement(seccomp=True, landlock=7, limits=False), "seccomp, Landlock (ABI 7): no limits were set"),
        (
            Confinement(seccomp=False, landlock=0, limits=False),
            "none: this system has no seccomp and no Landlock, and no limits were set",
        ),
    ],
)
def test_a_confinement_names_what_is_in_force_and_what_is_missing(confinement: Confinement, text: str) -> None:
    assert confinement.describe() == text
