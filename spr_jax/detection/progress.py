"""A progress bar for the path of the whole data."""

import contextlib
from collections.abc import Iterator

import jax
from tqdm import tqdm

FORM = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}"


class PathProgress:
    """Bars that show how many examples have entered the path.

    The solver is compiled with its callback. So there is one callback, `report`, for all calls,
    and it moves whichever bars are open.
    """

    def __init__(self) -> None:
        self.bars: list[tqdm] = []

    def report(self, fraction) -> None:
        for bar in self.bars:
            bar.update(max(round(float(fraction) * bar.total) - bar.n, 0))

    @contextlib.contextmanager
    def bar(self) -> Iterator[None]:
        with tqdm(total=100, desc="Examples entered", bar_format=FORM, leave=False) as bar:
            self.bars.append(bar)
            try:
                yield
            finally:
                jax.effects_barrier()  # the last reports may be on their way
                self.bars.remove(bar)


PATH_PROGRESS = PathProgress()
