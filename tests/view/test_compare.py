"""Two models on one page, and the vocabulary of one."""

from __future__ import annotations

import numpy as np
import pytest

import holdall
from holdall.viewer.comparison import relative_error


@pytest.fixture
def pair(tmp_path):
    random = np.random.default_rng(2)
    first = {f"h.{n}.w": random.normal(size=(8, 6)).astype(np.float32) for n in range(4)}
    second = dict(first)
    second["h.2.w"] = first["h.2.w"] + np.float32(0.25)
    second["new.name"] = second.pop("h.3.w")
    second["only"] = np.ones(3, np.float32)
    holdall.save(tmp_path / "a.safetensors", first, metadata={"step": "1"})
    holdall.save(tmp_path / "b.safetensors", second, metadata={"step": "2"})
    return tmp_path / "a.safetensors", tmp_path / "b.safetensors", first, second


def test_what_differs_is_listed_and_shown_side_by_side(browser, look, pair):
    a, b, first, second = pair
    look(a, b, page="compare")
    browser.find_text("2 tensors equal, 3 different or without a partner", "#compare-progress")
    browser.find_text("h.2.w", "#compare-grid")
    browser.find_text("is called 'new.name' in b", "#compare-grid")
    browser.find_text("step", "#compare-rest")
    error = np.sqrt(((first["h.2.w"] - second["h.2.w"]) ** 2).sum() / (first["h.2.w"] ** 2).sum())
    browser.find_text(f"{error:.3g}"[:4], "#compare-grid")
    browser.wait(lambda: [each.click() or True for each in browser.find_all("#compare-grid .ag-row [col-id='name']")
                          if each.text == "h.2.w"])  # fmt: skip
    browser.find("#pair-2 .js-plotly-plot")
    apart = browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#pair-2 .js-plotly-plot');"
        "return plot && plot.calcdata && plot.calcdata[0][0].z.map(row => [...row])"
    ))  # fmt: skip
    assert np.allclose(apart, first["h.2.w"] - second["h.2.w"], atol=1e-6)
    browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#pair-histogram .js-plotly-plot');"
        "return plot && plot.data && plot.data.length === 2 && plot.layout.barmode === 'overlay'"
    ))  # fmt: skip


def test_each_model_has_its_own_pages(browser, look, pair):
    a, b, _, _ = pair
    base = look(a, b)
    browser.find_text("a.safetensors", "h1")
    browser.click("#nav .choice:not(.current)")
    browser.find_text("b.safetensors", "h1")
    browser.open(base + "tensors?of=1&filter=only")
    browser.find_text("1 of 5 tensors", "#tensors-count")
    browser.open(base + "?of=1")
    browser.choose("#treemap-by", "difference")


@pytest.fixture
def quantized(tmp_path):
    """A model, one made of it with 8 bits, and the values of both."""
    random = np.random.default_rng(0)
    tensors = {f"h.{n}.{part}.weight": random.normal(size=(256, 512)).astype(np.float32) for n in range(3)
               for part in ("attn", "mlp")}  # fmt: skip
    holdall.save(tmp_path / "a.safetensors", tensors | {"wte.weight": np.ones((4, 4), np.float32)})
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "a.mcf", quantize="q8")
    with holdall.open(tmp_path / "a.mcf") as opened:
        decoded = {name: opened[name].numpy() for name in tensors}
    return tmp_path / "a.mcf", tmp_path / "a.safetensors", tensors, decoded


def measure_error(names, values, others):
    """The root mean square of the difference over that of the values, by numpy alone."""
    noise = sum(((values[name].astype(float) - others[name]) ** 2).sum() for name in names)
    return float(np.sqrt(noise / sum((values[name].astype(float) ** 2).sum() for name in names)))


def test_a_quantized_model_is_compared_with_its_original(browser, look, quantized):
    packed, original, values, decoded = quantized
    base = look(packed, original, page="compare")
    browser.find_text("6 different or without a partner", "#compare-progress")
    layers = browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#compare-plot .js-plotly-plot');"
        "return plot && plot.data && plot.data.length && plot.data.map(each => [each.name, each.x, [...each.y]])"
    ))  # fmt: skip
    found = {(layer, kind): error for kind, x, y in layers for layer, error in zip(x, y, strict=True)}
    for n in range(3):
        for part, kind in (("attn", "attention"), ("mlp", "feed-forward")):
            expected = measure_error([f"h.{n}.{part}.weight"], decoded, values)
            assert found[f"h.{n}", kind] == pytest.approx(expected, rel=1e-4)
    assert found["wte", "embedding"] == 0
    browser.wait(lambda: [each.click() or True for each in browser.find_all("#compare-grid .ag-row [col-id='name']")
                          if each.text == "h.1.mlp.weight"])  # fmt: skip
    browser.find_text("max |A − B|", "#compare-pair")
    z = np.array(browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#pair-2 .js-plotly-plot');"
        "return plot && plot.calcdata && plot.calcdata[0][0].z.map(row => [...row])"
    )))  # fmt: skip
    apart = np.abs(decoded["h.1.mlp.weight"] - values["h.1.mlp.weight"])
    tall, wide = -(-256 // 110), -(-512 // 160)
    assert z.shape == (-(-256 // tall), -(-512 // wide))
    for row, column in ((0, 0), (40, 77), (-1, -1)):
        top, left = range(0, 256, tall)[row], range(0, 512, wide)[column]
        assert z[row, column] == pytest.approx(apart[top : top + tall, left : left + wide].max(), rel=1e-4, abs=1e-7)
    browser.open(base)
    browser.choose("#treemap-by", "difference")
    browser.find_text("how large the difference is", "#treemap-key")


def test_the_error_of_a_layer_is_that_of_its_tensors_together(quantized):
    from holdall.viewer.comparison import Comparison

    *_, values, decoded = quantized
    others = {name.replace("attn", "attn.a").replace("mlp", "attn.b"): array for name, array in decoded.items()}
    firsts = {name.replace("attn", "attn.a").replace("mlp", "attn.b"): array for name, array in values.items()}
    others["h.2.attn.a.weight"] = firsts["h.2.attn.a.weight"]
    models = [holdall.Model([holdall.Tensor.of(*each) for each in pairs.items()]) for pairs in (firsts, others)]
    comparison = Comparison(*models)
    comparison.task.keep()
    comparison.task.wait()
    parts = {part.layer: part for part in comparison.list_layers()}
    assert list(parts) == ["h.0", "h.1", "h.2"]
    both = ["h.0.attn.a.weight", "h.0.attn.b.weight"]
    assert parts["h.0"].error == pytest.approx(measure_error(both, firsts, others), rel=1e-4)
    assert (parts["h.0"].different, parts["h.2"].different, parts["h.2"].tensors) == (2, 1, 2)
    assert parts["h.2"].error == pytest.approx(measure_error(["h.2.attn.b.weight"], firsts, others), rel=1e-4)
    (item, *_) = comparison.list_pairs()
    assert relative_error(item) == pytest.approx(measure_error([item.name], firsts, others), rel=1e-4)


def test_a_value_that_became_nan_has_no_error_of_zero():
    from holdall.viewer.comparison import Comparison
    from holdall.viewer.pages.compare import _row

    values = np.arange(8, dtype=np.float32)
    broken = np.where(values == 3, np.nan, values).astype(np.float32)
    models = [holdall.Model([holdall.Tensor.of("h.0.w", each)]) for each in (values, broken)]
    comparison = Comparison(*models)
    comparison.task.keep()
    comparison.task.wait()
    (item,) = comparison.list_pairs()
    assert np.isnan(relative_error(item)) and np.isnan(comparison.shade().average([0]))
    assert _row(0, item)["error"] is None
    assert _row(0, item)["detail"] == "1 value NaN or infinite on one side"


def test_tokens_are_listed_and_searched(browser, look, tmp_path):
    tokens = "\n".join(["[PAD]", "[UNK]", *(f"word{n}" for n in range(700)), "größe"]) + "\n"
    model = holdall.Model(
        [holdall.Tensor.of("w", np.ones(2, np.float32))],
        assets={"config.json": b'{"model_type": "bert"}\n', "vocab.txt": tokens.encode()},
    )
    holdall.save(tmp_path / "folder", model, format="hf")
    look(tmp_path / "folder", page="vocabulary")
    browser.find_text("703 tokens", "#tokens-count")
    browser.find_text("[PAD]", "#tokens")
    browser.find_text("pad", "#tokens")
    browser.type("#tokens-search", "GRÖ")
    browser.find_text("1 of 703 tokens", "#tokens-count")
    browser.find_text("67 72 c3 b6 c3 9f 65", "#tokens")


def test_a_file_that_changes_on_disk_is_noticed(browser, look, pair):
    a, _, first, _ = pair
    look(a)
    browser.find_text("a.safetensors", "h1")
    holdall.save(a, first | {"more": np.ones(2, np.float32)})
    browser.find_text("has changed on disk since it was opened", ".notice")


def test_what_the_table_leaves_out_is_counted(browser, look, pair, monkeypatch):
    from holdall.viewer.comparison import Comparison
    from holdall.viewer.pages import compare

    a, b, first, second = pair
    with holdall.open(a) as one, holdall.open(b) as other:
        comparison = Comparison(one, other)
        comparison.task.start()
        comparison.task.wait()
        pairs = comparison.list_pairs()
    error = measure_error(["h.2.w"], first, second)
    rests = {
        1: "… and 4 more: 2 with unknown or smaller errors, 2 equal in both",
        2: f"… and 3 more: 1 with no error above {error:.3g}, 2 equal in both",
        3: "… and 2 more, which are equal in both",
        5: "",
    }
    for listed, text in rests.items():
        monkeypatch.setattr(compare, "_LISTED", listed)
        assert compare._count_rest(pairs) == text
    monkeypatch.setattr(compare, "_LISTED", 2)
    look(a, b, page="compare")
    browser.find_text(rests[2], "#compare-more")
    shown = [each.text for each in browser.find_all("#compare-grid .ag-row [col-id='name']")]
    assert shown == ["only", "h.2.w"]


def test_what_one_model_alone_has_stands_under_that_model(browser, look, tmp_path):
    ones = holdall.Tensor.of("w", np.ones(4, np.float32))
    contents = ({"left.txt": b"x", "both.txt": b"y"}, {"right.txt": b"x", "both.txt": b"z"})
    for name, assets in zip("ab", contents, strict=True):
        holdall.save(tmp_path / name, holdall.Model([ones], assets=assets), format="hf")
    look(tmp_path / "a", tmp_path / "b", page="compare")
    browser.find_text("left.txt", "#compare-rest")
    rows = {row.find_elements("css selector", "td")[1].text: [td.text for td in row.find_elements("css selector", "td")]
            for row in browser.find_all("#compare-rest tbody tr")}  # fmt: skip
    assert rows["left.txt"][2:] == ["there", "–", ""]
    assert rows["right.txt"][2:] == ["–", "there", ""]
    assert rows["both.txt"][2:] == ["there", "there", "different"]


def test_the_page_of_a_tensor_says_which_model_it_is_of(browser, look, pair):
    a, b, _, _ = pair
    base = look(a, b)
    for of, letter, title in (("", "A", "a.safetensors"), ("&of=1", "B", "b.safetensors")):
        browser.open(f"{base}tensor?row=0{of}")
        browser.find_text(f"{letter} {title}", "#nav .choice.current")
        assert len(browser.find_all("#nav .choice")) == 2 and len(browser.find_all("#nav .current")) == 2
    browser.open(base + "compare")
    browser.find("#compare-rest")
    browser.wait(lambda: browser.run("return document.querySelectorAll('#nav .choice.current').length") == 0)


def test_a_comparison_of_large_tensors_ends_between_their_pieces(tmp_path):
    """A gigabyte takes seconds, and ctrl-C waits for the work to end."""
    from holdall.viewer.comparison import Comparison
    from tests.view.sparse import write_sparse

    write_sparse(tmp_path / "a.safetensors", 1, 5000, 10_000)
    changed = np.zeros((5000, 10_000), np.float32)
    changed[0, 0] = 1
    holdall.save(tmp_path / "b.safetensors", {"layers.0.w": changed})
    for other in ("a", "b"):
        with holdall.open(tmp_path / "a.safetensors") as a, holdall.open(tmp_path / f"{other}.safetensors") as b:
            done = []
            holdall.diff(a, b, progress=lambda count, total, done=done: done.append(count))
            assert len(done) > 10 and done == sorted(done) and done[-1] == a.nbytes
            comparison = Comparison(a, b)
            comparison.task._ended = True  # as at ctrl-C
            comparison.task._run()
            assert comparison.task.state == "stopped" and comparison.task.done < a.nbytes / 2
