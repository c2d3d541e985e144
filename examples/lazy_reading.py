"""Opening reads the index; a slice reads the bytes of the slice; statistics stream through the rest."""

import numpy as np

import holdall
from holdall.model.dtypes import find_dtype
from holdall.model.payload import Computed
from holdall.operations.stats import tensor_stats

ROWS, COLUMNS = 4096, 256


def rows():
    """The payload of a tensor that never exists in memory as a whole."""
    for row in range(ROWS):
        yield np.full(COLUMNS, row % 100, np.float32).tobytes()


def main() -> None:
    lazy = holdall.Tensor("table", find_dtype("f32"), (ROWS, COLUMNS), Computed(ROWS * COLUMNS * 4, rows))
    holdall.save("lazy.oinf", [lazy])
    with holdall.open("lazy.oinf") as model:
        table = model["table"]
        print(table)
        print("one row:", table[42, :4].tolist())
        print("every 999th row:", table[::999, 0].tolist())
        window = table.numpy()
        print(
            "a window on the file, not a copy:", not window.flags.owndata, "and read-only:", not window.flags.writeable
        )
        stats = tensor_stats(table)
        print(f"mean {stats.mean:.3f}, largest {stats.max:g}, std {stats.std:.3f}")
    print("still valid after close:", window[99, 0])


if __name__ == "__main__":
    main()
