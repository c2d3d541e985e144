"""A small random encoder against the forward pass of the books; and what is said when something is missing."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.model.model import Model, model_of
from holdall.model.vocab import Vocab
from holdall.runtime import Embedder
from tests.runtime.tiny import CONFIG, TEXTS, VOCAB, folder_model, forward, tensors


def expected(texts=TEXTS, *, pooling="mean", normalize=True, length=12):
    tokenizer = holdall.runtime.WordPiece(VOCAB, max_length=length)
    rows = []
    for text in texts:
        x = forward(tensors(), tokenizer.encode(text))
        row = x.mean(0) if pooling == "mean" else x[0]
        rows.append(row / np.linalg.norm(row) if normalize else row)
    return np.array(rows)


def close(got, want, tolerance=2e-6):
    assert got.dtype == np.float32
    assert got.shape == want.shape
    assert np.abs(got - want).max() < tolerance


def test_it_agrees_with_the_books():
    embedder = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG)
    close(embedder.embed(TEXTS), expected())
    assert embedder.dimension == 24
    assert embedder.cut == 1
    assert embedder.settings.layers == 2


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_batches_change_nothing(batch_size):
    embedder = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG)
    alone = np.concatenate([embedder.embed(text) for text in TEXTS])
    seen = []
    got = embedder.embed(iter(TEXTS), batch_size, progress=lambda done, total: seen.append((done, total)))
    assert np.abs(got - alone).max() < 1e-6
    assert seen[-1] == (6, 6)
    with pytest.raises(ContentError, match="1 text or more"):
        embedder.embed(TEXTS, 0)


def test_no_text_gives_no_row():
    assert Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG).embed([]).shape == (0, 24)


def test_names_may_have_a_prefix():
    model = model_of(tensors("bert."))
    close(Embedder(model, vocab=VOCAB, config=CONFIG).embed(TEXTS), expected())


@pytest.mark.parametrize("budget", [0, 2000, 9000])
def test_a_budget_changes_no_number(budget):
    free = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG)
    tight = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG, budget=budget)
    assert tight.embed(TEXTS, 2).tobytes() == free.embed(TEXTS, 2).tobytes()
    assert tight.figures.peak <= budget
    assert tight.figures.evictions + tight.figures.refused > 0
    assert tight.figures.rows > 0
    assert free.figures.evictions == 0


def test_half_floats_are_run_in_float32():
    halves = {name: values.astype(np.float16) for name, values in tensors().items()}
    whole = {name: values.astype(np.float32) for name, values in halves.items()}
    a, b = (Embedder(model_of(t), vocab=VOCAB, config=CONFIG).embed(TEXTS) for t in (halves, whole))
    assert a.tobytes() == b.tobytes()


# -- where content comes from -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    def make(**assets):
        path = tmp_path / "folder"
        holdall.save(path, folder_model(**assets), format="hf", fsync=False)
        return path

    return make


@pytest.mark.parametrize("suffix", ["safetensors", "oinf", "aero", "gptrs", "weights", "mcf"])
def test_the_container_knows_all(folder, tmp_path, suffix):
    path = tmp_path / f"model.{suffix}"
    words = {token: id for id, token in enumerate(VOCAB)}  # MCF takes no vocab.txt along
    holdall.convert(folder(**{"tokenizer.json": {"model": {"vocab": words}}}), path, carry=True, fsync=False)
    for options in ({}, {"mmap": False}):
        with holdall.open(path, **options) as model:
            close(Embedder(model).embed(TEXTS), expected())


def test_what_was_made_from_a_model_asks_it(folder):
    with holdall.open(folder()) as model:
        made = holdall.quant.quantize_model(model, "q8")
        got = Embedder(made).embed(TEXTS)
        assert (got * expected()).sum(1).min() > 0.99


def test_metadata_of_embd_states_the_heads(tmp_path):
    path = tmp_path / "model.weights"
    holdall.save(path, tensors(), metadata={"num_attention_heads": "3"}, vocab=VOCAB, fsync=False)
    with holdall.open(path) as model:
        got = Embedder(model).embed(TEXTS)
    close(got, expected(), 1e-4)  # nothing states the eps: BERT's own


def test_the_model_states_length_pooling_and_normalization(folder):
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling")]
    stated = {
        "sentence_bert_config.json": {"max_seq_length": 6},
        "modules.json": modules,
        "1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        "tokenizer_config.json": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    }
    with holdall.open(folder(**stated)) as model:
        embedder = Embedder(model)
        close(embedder.embed(TEXTS), expected(pooling="cls", normalize=False, length=6), 1e-5)
        assert (embedder.settings.strip_accents, embedder.settings.ideographs) == (False, False)
        assert embedder.cut == 3
        assert Embedder(model, max_length=4).tokenizer.max_length == 4


def test_tokenizer_json_states_how_letters_are_treated(folder):
    normalizer = {"type": "BertNormalizer", "lowercase": False, "strip_accents": None, "handle_chinese_chars": True}
    with holdall.open(folder(**{"tokenizer.json": {"normalizer": normalizer}})) as model:
        assert Embedder(model).settings.lowercase is False


def test_capitals_in_a_vocabulary_mean_that_case_matters():
    cased = Vocab([*VOCAB.tokens[:-1], "A"])
    assert Embedder(model_of(tensors()), vocab=cased, config=CONFIG).settings.lowercase is False


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named():
    model = model_of(tensors())
    with pytest.raises(MissingError, match=r"lacks the vocabulary .*--vocab.* and the number of attention heads"):
        Embedder(model)
    with pytest.raises(MissingError, match=r"lacks the vocabulary \(a vocab.txt: --vocab, or vocab= in Python\)$"):
        Embedder(model, config=CONFIG)
    with pytest.raises(MissingError, match=r"lacks the number of attention heads"):
        Embedder(model, vocab=VOCAB)
    with pytest.raises(UnsupportedError, match="no BERT encoder"):
        Embedder(model_of({"w": np.zeros(3)}), vocab=VOCAB, config=CONFIG)
    some = {name: values for name, values in tensors().items() if "layer.1.output.dense.bias" not in name}
    with pytest.raises(MissingError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        Embedder(model_of(some), vocab=VOCAB, config=CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu_new"}, "hidden_act 'gelu_new' cannot be run"),
        ({"model_type": "roberta"}, "model_type 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"num_attention_heads": 5}, "do not divide"),
        ({"num_attention_heads": 0}, "num_attention_heads 0"),
        ({"num_attention_heads": "3"}, "num_attention_heads, a whole number"),
        ({"num_hidden_layers": 3}, "encoder.layer.2"),
        ({"hidden_size": 48}, "says hidden_size 48, but the tensors say 24"),
        ({"layer_norm_eps": "x"}, "layer_norm_eps"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(change, message):
    with pytest.raises((UnsupportedError, ContentError, MissingError), match=message):
        Embedder(model_of(tensors()), vocab=VOCAB, config={**CONFIG, **change})


def test_tensors_that_do_not_fit_are_refused():
    odd = tensors() | {"encoder.layer.0.output.dense.weight": np.zeros((24, 41), np.float32)}
    with pytest.raises(ContentError, match=r"is \[24, 41\], but the encoder needs \[24, 40\]"):
        Embedder(model_of(odd), vocab=VOCAB, config=CONFIG)
    flat = tensors() | {"embeddings.position_embeddings.weight": np.zeros(24, np.float32)}
    with pytest.raises(ContentError, match="a matrix is expected"):
        Embedder(model_of(flat), vocab=VOCAB, config=CONFIG)


def test_vocabularies_and_lengths_that_do_not_fit_are_refused():
    long = Vocab([*VOCAB.tokens, "more"])
    with pytest.raises(ContentError, match="16 tokens, but the model knows 15"):
        Embedder(model_of(tensors()), vocab=long, config=CONFIG)
    for length in (1, 13):
        with pytest.raises(ContentError, match="takes 2 to 12"):
            Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG, max_length=length)
    with pytest.raises(ContentError, match="not list"):
        Embedder(model_of(tensors()), vocab=VOCAB, config=[1])


@pytest.mark.parametrize(
    ("assets", "message"),
    [
        ({"modules.json": [{"type": "sentence_transformers.models.Dense"}]}, "through Dense"),
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "pooling_mode_max_tokens"),
        (
            {"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}},
            "pools by pooling_mode_cls_token, pooling_mode_mean_tokens",
        ),
    ],
)
def test_what_comes_after_the_encoder_must_be_known(folder, assets, message):
    with holdall.open(folder(**assets)) as model, pytest.raises(UnsupportedError, match=message):
        Embedder(model)


def test_a_closed_model_says_so(folder):
    with holdall.open(folder()) as model:
        embedder = Embedder(model)
    with pytest.raises(holdall.ClosedError):
        embedder.embed("a")


def test_the_files_of_the_model_win_over_nothing_else(folder, tmp_path):
    """A vocabulary that is given takes the place of the container's own."""
    with holdall.open(folder()) as model:
        turned = Vocab([*VOCAB.tokens[:8], *reversed(VOCAB.tokens[8:])])
        assert np.abs(Embedder(model, vocab=turned).embed("cat") - Embedder(model).embed("cat")).max() > 0.01
        assert json.loads(model.assets["config.json"]) == CONFIG
        assert isinstance(model, Model)


def test_threads_compute_batches_at_the_same_time_and_change_no_bit():
    embedder = Embedder(model_of(tensors()), vocab=VOCAB, config=CONFIG)
    alone = embedder.embed(TEXTS, 1)
    together, encode = threading.Barrier(3), embedder._encoder.encode

    def wait_for_others(ids):
        together.wait(20)  # breaks unless three batches run at once
        return encode(ids)

    embedder._encoder.encode = wait_for_others
    seen = []
    assert len(TEXTS) == 6
    found = embedder.embed(TEXTS, 1, threads=3, progress=lambda done, total: seen.append((done, total)))
    assert found.tobytes() == alone.tobytes()
    assert seen == [(done, 6) for done in range(1, 7)]
    with pytest.raises(ContentError, match="1 thread or more, not 0"):
        embedder.embed(TEXTS, threads=0)


def test_normalization_can_be_chosen():
    given = {"vocab": VOCAB, "config": CONFIG}
    made = [Embedder(model_of(tensors()), normalize=choice, **given) for choice in (None, False)]
    as_stated, plain = (embedder.embed(TEXTS) for embedder in made)
    assert np.abs(np.linalg.norm(as_stated, axis=1) - 1).max() < 1e-6
    assert np.abs(plain / np.linalg.norm(plain, axis=1, keepdims=True) - as_stated).max() < 1e-6
    assert not np.allclose(np.linalg.norm(plain, axis=1), 1, atol=1e-3)


def test_nearest_of_many_in_pieces(monkeypatch):
    from holdall.runtime import nearest

    random = np.random.default_rng(2)
    vectors, queries = random.normal(size=(500, 8)).astype("f4"), random.normal(size=(40, 8)).astype("f4")
    monkeypatch.setattr(nearest, "_COSINES", 3 * 500)
    found = nearest.find_nearest(queries, vectors, 7)
    for query, rows in zip(queries.astype("f8"), found, strict=True):
        cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
        assert [row for row, _ in rows] == np.argsort(-cosines)[:7].tolist()
        assert np.abs([cosine for _, cosine in rows] - np.sort(cosines)[::-1][:7]).max() < 1e-6
