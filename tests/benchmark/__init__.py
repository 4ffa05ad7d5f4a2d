"""Speed benchmark: training compared with upper bounds, simpler baselines and another library.

Rates are model-steps per second; one optimiser step of one model is one model-step. Contenders of a
comparison take turns, so that other work on the machine affects all of them. A ratio compares two
contenders in one round; reports give its median over rounds, its smallest and its largest value.
"""
