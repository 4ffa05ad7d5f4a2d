"""Speed benchmark: training compared with upper bounds, simpler baselines and another library.

Rates are model-steps per second; one optimiser step of one model is one model-step. Contenders take
turns, so that other work on the machine affects all of them; a ratio is that of one round.
"""
