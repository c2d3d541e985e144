"""How fast holdall is and how much memory it takes, beside what else could be used, in one run: ``make bench``.

work.py     something to be timed, in a separate process
case.py     what runs in turns with what, and the bars
measure.py  taking turns
figures.py  medians, ratios, whether a bar holds
cases/      a file for each topic: what is done, and beside what
record.py   the figures of a run, and the machine it ran on, as JSON
svg.py      plots; plots.py says which
notes.py    why a bar is missed
page.py     docs/benchmarks.md and the figures of the README, made from the record
"""
