"""The simulated driver: plans, submits and resumes without training."""

from attnkit.bench.sweep_driver import simulate
from attnkit.sweeps.folder import SweepFolder


def test_a_simulated_driver_submits_every_cell_and_resumes(tmp_path):
    """The missing runs after the resumption are those of the chunks without a part."""
    simulation = simulate(4_000, SweepFolder(str(tmp_path)))
    assert simulation.n_cells == 4_000
    assert simulation.n_chunks > 10
    assert simulation.part_megabytes > 0
