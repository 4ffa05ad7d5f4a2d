"""Speed benchmark: training compared with upper bounds, simpler baselines and another library.

| module | content |
|---|---|
| `cases` | tasks and model sizes that are compared |
| `loop` | baselines that train one model at a time in plain PyTorch, and x-transformers |
| `bound` | upper bound: the matrix products of a training step alone |
| `true_bound` | upper bound: the products that the kernel needs, at the full speed of a core |
| `parts` | time of data, gradients, Adam, evaluation and snapshots |
| `supply` | speed of drawing examples, compared with using them |
| `contenders` | everything that is timed, each in its own process |
| `compare` | interleaved rounds, medians, ratios and their spread |
| `live` | training while visitors watch the dashboard |
| `sweep_driver` | the driver of a sweep with a million cells, without training |
| `report` | tables |

Rates are model-steps per second; one optimiser step of one model is one model-step. Contenders of a
comparison take turns, so that other work on the machine affects all of them. A ratio compares two
contenders in one round; reports give its median over rounds, its smallest and its largest value.
"""
