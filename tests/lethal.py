"""A task that ends the process that draws it, or takes its memory: a module of one's own."""

import os

from attnkit.foundation.settings import dial
from attnkit.tasks import register_task
from attnkit.tasks.phonebook import Phonebook


@register_task
class Lethal(Phonebook):
    """A phone book, until it strikes."""

    name = "lethal"
    title = "Lethal"
    place = 99

    deadly: int = dial(0, "Deadly", "Whether a draw ends the process.", ge=0, le=1)
    appetite: int = dial(0, "Appetite", "Megabytes taken at every draw.", ge=0, le=9999)

    def make_examples(self, n_examples, generator):
        """Strike, or draw what the phone book draws."""
        import torch

        if self.deadly:
            os._exit(1)
        torch.ones(self.appetite * 2**18)
        return super().make_examples(n_examples, generator)
