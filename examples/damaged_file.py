"""What is wrong with a file: open says the first thing, verify all of them, each with its place."""

from pathlib import Path

import numpy as np

import holdall
from holdall import oinf


def main() -> None:
    model = oinf.model({"w": np.ones((4, 4), np.float32), "mask": np.array([True, False])}, sizevars={"B": 4})
    holdall.save("whole.oinf", model)
    data = bytearray(Path("whole.oinf").read_bytes())

    with holdall.open("whole.oinf") as whole:
        data[whole["mask"].offset + 1] = 7  # a BOOL that is neither 0 nor 1
    data[9] = 1  # header flags
    at = data.index(b"w\0\0\0") + 4 + 12  # the first dim of 'w'
    data[at] = 5
    Path("damaged.oinf").write_bytes(data)

    try:
        holdall.open("damaged.oinf")
    except holdall.FormatError as error:
        print("open:", error)
    report = holdall.verify("damaged.oinf", level="strict")
    print(report)
    for finding in report.findings:
        print(f"  {finding.severity} {finding.rule} at {finding.offset:#x}: {finding.message}")

    data[at] = 4
    report = holdall.verify(bytes(data), level="strict")
    print("with the dim repaired:", [finding.rule for finding in report.findings])


if __name__ == "__main__":
    main()
