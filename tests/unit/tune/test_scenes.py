"""Where shots begin, from differences between pictures: cuts are found, and flashes, motion and fades are none."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.tune.scenes import HEIGHT, LOOK, MAX_SHOTS, WIDTH, FrameDifferences, Picture, Shot, as_shots, cuts

LENGTH = 12  # the shortest shot, half a second
WORLD = 400  # pixels that a camera can pan over


def worlds(count: int) -> list[Picture]:
    """Landscapes that have nothing in common: patches of 16 pixels."""
    random = np.random.default_rng(5)
    patches = random.integers(20, 236, (count, HEIGHT // 16, WORLD // 16), dtype=np.uint8)
    return list(patches.repeat(16, axis=1).repeat(16, axis=2))


WORLDS = worlds(8)


def view(world: int, place: int) -> Picture:
    return WORLDS[world][:, place : place + WIDTH]


def pan(world: int, frames: int, speed: int = 1) -> list[Picture]:
    return [view(world, (number * speed) % (WORLD - WIDTH)) for number in range(frames)]


def found(pictures: list[Picture], length: int = LENGTH, most: int = MAX_SHOTS) -> tuple[int, ...]:
    differences = FrameDifferences()
    for picture in pictures:
        differences.add(picture)
    return cuts(differences.all(), length, most)


@given(
    st.lists(st.tuples(st.integers(LENGTH, 60), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(0, len(WORLDS) - 1),
)
def test_every_cut_between_slow_pans_is_found_and_nothing_else(shots: list[tuple[int, int]], first: int) -> None:
    pictures: list[Picture] = []
    starts = []
    for number, (frames, speed) in enumerate(shots):
        starts.append(len(pictures))
        pictures += pan((first + number) % len(WORLDS), frames, speed)
    assert found(pictures) == tuple(starts[1:])


@pytest.mark.parametrize("flash", range(1, LOOK))
@pytest.mark.parametrize("level", [0, 255])
def test_a_flash_is_no_cut(flash: int, level: int) -> None:
    white = np.full((HEIGHT, WIDTH), level, np.uint8)
    assert found([*pan(0, 30), *[white] * flash, *pan(0, 60)[30 + flash :]]) == ()


def test_a_series_of_flashes_is_no_cut() -> None:
    white = np.full((HEIGHT, WIDTH), 255, np.uint8)
    pictures = [white if number % 7 == 6 else picture for number, picture in enumerate(pan(0, 100))]
    assert found(pictures) == ()


def test_a_flash_at_a_cut_hides_it_not() -> None:
    white = np.full((HEIGHT, WIDTH), 255, np.uint8)
    (cut,) = found([*pan(0, 30), white, *pan(1, 30)])
    assert cut in {30, 31}


@pytest.mark.parametrize("speed", [8, 20, 48, 96])
def test_motion_that_begins_and_ends_suddenly_is_no_cut(speed: int) -> None:
    fast = [view(0, (30 + number * speed) % (WORLD - WIDTH)) for number in range(25)]
    still = [fast[-1]] * 30
    assert found([*pan(0, 30), *fast, *still]) == ()


def test_a_fade_and_a_dissolve_are_no_cuts() -> None:
    one, other = view(0, 0).astype(float), view(1, 0).astype(float)
    mixed = [(one + (other - one) * share).astype(np.uint8) for share in np.linspace(0, 1, 20)]
    dark = [(other * share).astype(np.uint8) for share in np.linspace(1, 0, 20)]
    assert found([*pan(0, 30, 0), *mixed, *pan(1, 30, 0), *dark]) == ()


@pytest.mark.parametrize("repeats", [2, 3])
def test_a_drawing_that_is_shown_for_several_frames_is_no_shot(repeats: int) -> None:
    drawings = [view(0, 20 * number) for number in range(14)]
    assert found([drawing for drawing in drawings for _ in range(repeats)]) == ()


def test_a_clip_whose_every_frame_is_a_cut_has_one_shot() -> None:
    assert found([view(number % len(WORLDS), number) for number in range(100)]) == ()


def test_the_same_picture_darker_by_little_is_no_cut() -> None:
    assert found([*[view(0, 0)] * 30, *[view(0, 0) - 5] * 30]) == ()
    assert found([*[view(0, 0)] * 30, *[view(0, 0) - 12] * 30]) == (30,)


@pytest.mark.parametrize("frames", [0, 1, 2, LENGTH, 2 * LENGTH - 1])
def test_a_clip_too_short_for_two_shots_has_one(frames: int) -> None:
    assert found([*pan(0, frames // 2), *pan(1, frames - frames // 2)]) == ()


def test_of_two_cuts_too_near_the_clearer_one_is_kept() -> None:
    grey = [np.full((HEIGHT, WIDTH), level, np.uint8) for level in (100, 110, 200)]
    assert found([*[grey[0]] * 30, *[grey[1]] * 8, *[grey[2]] * 30]) == (38,)


def test_the_clearest_cuts_are_kept_if_there_are_too_many() -> None:
    steps = [40, 50, 60, 30, 200]
    pictures = [np.full((HEIGHT, WIDTH), level, np.uint8) for level in steps for _ in range(20)]
    assert found(pictures, most=2) == (60, 80)
    assert found(pictures) == (20, 40, 60, 80)


@given(st.lists(st.integers(0, 255), max_size=200), st.integers(1, 40), st.integers(1, 10))
def test_shots_are_never_shorter_nor_more_than_wanted(levels: list[int], length: int, most: int) -> None:
    pictures = [np.full((HEIGHT, WIDTH), level, np.uint8) for level in levels]
    starts = found(pictures, length, most)
    assert len(starts) <= most
    assert starts == found(pictures, length, most)
    bounds = [0, *starts, len(levels)]
    assert all(end - first >= length for first, end in pairwise(bounds)) or not starts


def test_shots_are_all_frames_of_the_clip() -> None:
    assert as_shots((), 1, Fraction(25)) == (Shot(0, 1, 0.0),)
    shots = as_shots((30, 70), 100, Fraction(24000, 1001))
    assert [(one.first, one.end, one.frames) for one in shots] == [(0, 30, 30), (30, 70, 40), (70, 100, 30)]
    assert shots[1].seconds == pytest.approx(1.25125)
