"""The benchmark: how near training is to what the machine can do, and how far from simpler ways.

| module | what |
|---|---|
| `cases` | the sizes that are compared |
| `loop` | one model at a time in plain PyTorch: the clean loop, the strongest simple way, peers |
| `bound` | nothing but the matrix products |
| `true_bound` | the products that the kernel's step needs, as fast as a core computes them |
| `parts` | data, gradients, Adam, evaluation and snapshots, each by itself |
| `contenders` | everything that is timed, each in a process of its own |
| `compare` | interleaved rounds, medians, ratios and their spread |
| `live` | the training process with people watching |
| `report` | the tables |

Rates are model-steps per second: one optimiser step of one model is one. Contenders of a
comparison take turns, so that what else the machine does meets all of them; a ratio is that of one
round, and what is reported is the median over rounds with the smallest and the largest.
"""
