"""A task that ends the process that draws it, or takes its memory: a module of one's own."""

import os
from itertools import count

from attnkit.foundation.settings import dial
from attnkit.tasks import register_task
from attnkit.tasks.phonebook import Phonebook

_drawn = count(1)


@register_task
class Lethal(Phonebook):
    """A phone book, until it strikes."""

    name = "lethal"
    title = "Lethal"
    place = 99

    lives: int = dial(0, "Lives", "Draws until the process ends; 0: it goes on.", ge=0, le=999)
    appetite: int = dial(0, "Appetite", "Megabytes taken at every draw.", ge=0, le=9999)

    def make_examples(self, n_examples, generator):
        """Strike, or draw what the phone book draws."""
        import torch

        if self.lives and next(_drawn) >= self.lives:
            os._exit(1)
        torch.ones(self.appetite * 2**18)
        return super().make_examples(n_examples, generator)
