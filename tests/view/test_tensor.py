"""The page of one tensor: the heat map down to single numbers, statistics, scales, and the line that reads a slice."""

from __future__ import annotations

import base64
import time

import numpy as np
import pytest

import holdall
from holdall.viewer.matrix import Matrix, Region
from holdall.viewer.pooling import Pooling

PLOT = "document.querySelector('#tensor-heat .js-plotly-plot')"


@pytest.fixture(scope="module")
def values():
    random = np.random.default_rng(5)
    found = random.normal(size=(700, 900)).astype(np.float32)
    found[123, 456] = 77.5
    return found


@pytest.fixture(scope="module")
def model(values, tmp_path_factory):
    path = tmp_path_factory.mktemp("tensor") / "model.safetensors"
    tensors = {"a": values, "b.deep": np.arange(120, dtype=np.int16).reshape(2, 3, 4, 5), "c": np.zeros(0, np.float32)}
    holdall.save(path, tensors | {"d": np.array(2.5), "e": np.linspace(-1, 1, 5000)})
    return path


def page_of(path, name):
    with holdall.open(path) as opened:
        return f"tensor?row={list(opened).index(name)}"


def cells(browser):
    """The exact numbers that the cells show, with their places; None while they are pooled."""
    return browser.run(
        f"const plot = {PLOT}; return plot && plot.data && plot.data[0] && plot.data[0].customdata || null"
    )


def box(browser):
    return browser.wait(lambda: browser.run(
        f"const plot = {PLOT}; const drag = plot && plot.querySelector('.nsewdrag'); if (!drag) return null;"
        "const box = drag.getBoundingClientRect(); return box.width > 50 && [box.x, box.y, box.width, box.height]"
    ))  # fmt: skip


def shown_region(browser):
    """The rows and the columns that the page shows."""
    return tuple(browser.find(css).get_attribute("value") for css in ("#tensor-top", "#tensor-left-edge"))


def wait_for_tensor(browser):
    """Wait until the heat map is drawn, and what is done on it is reported."""
    browser.find_text("each cell", "#tensor-scale")
    drawn = f"const plot = {PLOT}; return plot.holdallWatched && plot.data.length && !plot.matches('[class*=pending]')"
    browser.wait(lambda: browser.run(drawn), "the heat map")


def set_field(browser, css, text):
    browser.type(css, text)
    browser.find(css).send_keys("\n")


def test_a_drag_zooms_in_and_a_double_click_shows_all_again(browser, look, model):
    look(model, page=page_of(model, "a"))
    wait_for_tensor(browser)
    browser.find_text("each cell stands for 5 × 3 elements", "#tensor-scale")
    for _ in range(2):  # the second time is equal to the first, which Dash would not report
        x, y, width, height = box(browser)
        browser.drag(x + width * 0.25, y + height * 0.25, x + width * 0.5, y + height * 0.5)
        browser.wait(lambda: shown_region(browser)[0] not in ("", "0:700"))
        (top, bottom), (left, right) = (map(int, each.split(":")) for each in shown_region(browser))
        assert abs(top - 175) < 15 and abs(bottom - 350) < 15 and abs(left - 225) < 15 and abs(right - 450) < 15
        wait_for_drawing(browser, top, left)
        show_all(browser, x + width / 2, y + height / 2)
        wait_for_drawing(browser, 0, 0)


def show_all(browser, x, y):
    """Double-click until the page takes two clicks for one: on a busy machine they come too far apart."""
    for _ in range(10):
        browser.double_click_at(x, y)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if shown_region(browser) == ("0:700", "0:900"):
                return
            time.sleep(0.05)
    raise AssertionError(f"a double click does not show all, but {shown_region(browser)}")


def wait_for_drawing(browser, top, left):
    """Wait until the heat map shows what begins at a row and a column."""
    shown = (
        f"const plot = {PLOT}; return !plot.matches('[class*=pending]') &&"
        " [plot.layout.yaxis.range[1], plot.layout.xaxis.range[0]]"
    )
    browser.wait(lambda: browser.run(shown) == [top - 0.5, left - 0.5], f"the heat map from {top}, {left}")


def test_single_values_are_those_of_the_model(browser, look, model, values):
    look(model, page=page_of(model, "a"))
    wait_for_tensor(browser)
    set_field(browser, "#tensor-top", "120:128")
    browser.wait(lambda: browser.find("#tensor-top").get_attribute("value") == "120:128")
    set_field(browser, "#tensor-left-edge", "450:460")
    browser.find_text("each cell is one element", "#tensor-scale")
    found = browser.wait(lambda: cells(browser))
    shown = np.array([[np.float32(text) for _, text in row] for row in found])
    with holdall.open(model) as opened:
        assert np.array_equal(shown, opened["a"][120:128, 450:460])
    assert found[3][6] == ["123, 456", "77.5"]
    browser.find_text("['a'][120:128, 450:460]", "#tensor-code")
    line = browser.find("#tensor-code").text
    assert np.array_equal(eval(line), values[120:128, 450:460])


def test_buttons_go_where_they_say(browser, look, model):
    look(model, page=page_of(model, "a"))
    wait_for_tensor(browser)
    steps = {"in": ("175:525", "225:675"), "left": ("175:525", "0:450"), "down": ("350:700", "0:450"),
             "out": ("175:700", "0:675"), "whole": ("0:700", "0:900")}  # fmt: skip
    for step, expected in steps.items():
        browser.click(f"#tensor-{step}")
        browser.wait(lambda expected=expected: shown_region(browser) == expected, f"{step} leads to {expected}")


def test_the_page_shows_the_largest_values_and_a_histogram(browser, look, model, values):
    look(model, page=page_of(model, "a"))
    browser.find_text("77.5", "#tensor-largest")
    browser.find_text("[123, 456]", "#tensor-largest")
    counts = browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#tensor-histogram .js-plotly-plot');"
        "return plot && plot.data && plot.data[0] && plot.data[0].y"
    ))  # fmt: skip
    assert sum(counts) == values.size
    browser.find_text("max\n77.5", "#tensor-facts")
    browser.choose("#tensor-by", "mean")
    browser.wait(lambda: browser.run(f"return {PLOT}.data[0].zmin") < 0)


def test_tensors_of_any_rank_are_shown(browser, look, model):
    base = look(model)
    for name, text in (("b.deep", "[2, 3, 4, 5]"), ("c", "no elements"), ("d", "2.5"), ("e", "f64")):
        browser.open(base + page_of(model, name))
        browser.find_text(text, "#page")
        if name != "c":
            browser.find_text("each cell", "#tensor-scale")


def test_a_row_that_is_not_there_is_refused_by_the_page(browser, look, model):
    base = look(model)
    for row in ("99", "-1", "x", "", "1e3", "9" * 30):
        browser.open(f"{base}tensor?row={row}")
        browser.find_text("There is no such tensor.", "#page")


def test_scales_and_codes_of_a_quantized_tensor_are_shown(browser, look, values, tmp_path):
    holdall.save(tmp_path / "a.safetensors", {"w": values[:64, :256]})
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "a.mcf", quantize="q4")
    look(tmp_path / "a.mcf", page="tensor?row=0")
    browser.find_text("4 bits, blocks of 32 values", "#tensor-quantized")
    browser.find("#tensor-scales .js-plotly-plot")
    codes = browser.wait(lambda: browser.run(
        "const plot = document.querySelector('#tensor-codes .js-plotly-plot');"
        "return plot && plot.data && plot.data[0].x"
    ))  # fmt: skip
    assert set(codes) <= set(range(-7, 8)) and len(codes) > 8


@pytest.mark.parametrize("shape", [(1000, 777), (3, 5000), (1, 3_000_000), (2500, 2500), (1, 1), (40, 3, 7, 11)])
def test_pooled_cells_are_those_of_numpy(shape):
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    pooling = Pooling(Matrix(holdall.Tensor.of("w", values)))
    matrix = pooling.matrix
    flat = values.reshape(matrix.rows, matrix.columns)
    for region in (matrix.whole, matrix.clip(Region(0, 700, 100, 501)), matrix.clip(Region(0, 2, 3, 1 << 60))):
        pooled = pooling.look(region, 16, 32)
        top, bottom, left, right = pooled.region
        assert top <= region.top and bottom >= region.bottom and left <= region.left and right >= region.right
        for row, column in ((0, 0), (-1, -1)):
            at = range(top, bottom, pooled.tall)[row], range(left, right, pooled.wide)[column]
            cell = flat[at[0] : min(at[0] + pooled.tall, bottom), at[1] : min(at[1] + pooled.wide, right)]
            assert pooled.show("max")[row, column] == np.abs(cell).max()
            assert pooled.show("mean")[row, column] == pytest.approx(cell.mean(dtype=float), abs=1e-5)
            assert pooled.show("std")[row, column] == pytest.approx(cell.std(dtype=float), abs=1e-4)
        assert pooled.counts.sum() == (bottom - top) * (right - left)
    largest = [abs(float(value)) for _, value in pooling.find_largest()]
    assert largest == np.sort(np.abs(values).ravel())[::-1][: len(largest)].tolist()
    place, value = pooling.find_largest()[0]
    assert values[place] == value


@pytest.mark.parametrize("shape", [(70, 900), (3, 4, 5), (1, 2000)])
def test_profiles_are_those_of_numpy(shape):
    from holdall.viewer.plots import draw_profile

    values = np.random.default_rng(4).normal(3, 2, size=shape).astype(np.float32)
    pooling = Pooling(Matrix(holdall.Tensor.of("w", values)))
    flat = values.reshape(pooling.matrix.rows, pooling.matrix.columns).astype(float)
    pooled = pooling.look(pooling.matrix.whole, 10**6, 10**6)
    assert pooled.is_single
    for axis in (0, 1):
        mean, std, top = pooled.profile(axis)
        assert mean == pytest.approx(flat.mean(axis=1 - axis), abs=1e-5)
        assert std == pytest.approx(flat.std(axis=1 - axis), abs=1e-6)
        assert top == pytest.approx(np.abs(flat).max(axis=1 - axis), abs=1e-6)
        _, line, _ = draw_profile(pooled, axis)["data"]
        assert np.frombuffer(
            base64.b64decode(line["y"]["bdata"]), line["y"]["dtype"].replace("f", "<f")
        ) == pytest.approx(flat.mean(axis=1 - axis), abs=1e-5)
    rows = pooling.look(pooling.matrix.whole, 2, 10**6)  # pooled rows have the moments of all elements under them
    first = flat[: rows.tall]
    assert rows.profile(0)[0][0] == pytest.approx(first.mean(), abs=1e-5)
    assert rows.profile(0)[1][0] == pytest.approx(first.std(), abs=1e-3)


@pytest.mark.parametrize("method", ["int8", "int4", "q8", "q4", "k6", "k4", "k3", "k2"])
@pytest.mark.parametrize("shape", [(6, 600), (3, 20)])
def test_scales_and_codes_of_mcf_methods_make_the_values(values, tmp_path, method, shape):
    from holdall.viewer.quantized import read_quantized

    holdall.save(tmp_path / "a.safetensors", {"w": values[: shape[0], : shape[1]]})
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "a.mcf", quantize=method)
    with holdall.open(tmp_path / "a.mcf") as opened:
        found, decoded = read_quantized(opened["w"]), opened["w"].numpy()
    top = 2 ** (int(method[-1]) - 1)
    assert np.abs(found.codes).max() == top - 1  # the most negative number stays unused
    if method.startswith("int"):
        scale = float(found.text.split("one scale ")[1].split(",")[0])
        assert found.codes.reshape(shape) * scale == pytest.approx(decoded, rel=1e-5)
    else:
        blocks = -(-shape[1] // 32)
        made = found.codes.reshape(shape[0], blocks, 32) * found.scales.reshape(shape[0], blocks, 1)
        assert np.array_equal(made.reshape(shape[0], -1)[:, : shape[1]], decoded)


# The halves that are scales and offsets of a block, by their bytes, and the ends of the codes.
PLACES = {"Q4_0": (0, None, -8, 7), "Q4_1": (0, 2, 0, 15), "Q5_0": (0, None, -16, 15), "Q5_1": (0, 2, 0, 31),
          "Q8_0": (0, None, -128, 127), "Q2_K": (80, 82, 0, 3), "Q3_K": (108, None, -4, 3), "Q4_K": (0, 2, 0, 15),
          "Q5_K": (0, 2, 0, 31), "Q6_K": (208, None, -32, 31)}  # fmt: skip


@pytest.mark.parametrize("kind", PLACES)
def test_scales_and_codes_of_ggml_types_are_those_of_the_gguf_package(tmp_path, kind):
    gguf = pytest.importorskip("gguf")
    from holdall.viewer.quantized import read_quantized

    at, offset, low, high = PLACES[kind]
    type_ = gguf.GGMLQuantizationType[kind]
    _, stride = gguf.GGML_QUANT_SIZES[type_]
    blocks = np.random.default_rng(8).integers(0, 256, (60, stride), np.uint8)
    blocks[:, at : at + 2] = np.linspace(0.01, 0.5, 60).astype("<f2").view(np.uint8).reshape(60, 2)
    if offset is not None:  # without it, what gguf decodes is each code times its scale
        blocks[:, offset : offset + 2] = 0
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("w", blocks, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with holdall.open(tmp_path / "a.gguf") as opened:
        found = read_quantized(opened["w"])
    assert found is not None and (found.codes.min(), found.codes.max()) == (low, high)
    decoded = gguf.quants.dequantize(blocks, type_).ravel()
    each = np.repeat(found.scales, len(found.codes) // len(found.scales))
    assert found.codes.dtype == np.int16 and np.array_equal(each * found.codes, decoded)
    assert ("offset" in found.text) == (offset is not None) and ("a scale for" in found.text) == kind.endswith("_K")


def test_a_type_whose_parts_are_not_known_says_so(browser, look, tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    blocks = np.random.default_rng(8).integers(0, 100, (6, 17), np.uint8)
    writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    look(tmp_path / "a.gguf", page="tensor?row=0")
    browser.find_text("Scales and codes of ggml.mxfp4 are not shown", "#tensor-quantized")


def test_a_look_reads_what_it_shows(tmp_path):
    from holdall.source import FileSource
    from holdall.testing.recording import RecordingSource

    values = np.zeros((2000, 2000), np.float32)
    holdall.save(tmp_path / "a.safetensors", {"w": values})
    source = RecordingSource(FileSource(tmp_path / "a.safetensors"))
    with holdall.open(source) as model:
        pooling = Pooling(Matrix(model["w"]))
        before = source.bytes_read
        pooling.look(Region(100, 150, 200, 300), 150, 300)
        assert source.bytes_read - before <= 51 * 100 * 4 + 4096


@pytest.mark.parametrize(
    ("shape", "region", "line"),
    [
        ((4, 5), (0, 2, 1, 3), "[0:2, 1:3]"),
        ((4, 5), (0, 4, 0, 5), "[:, :]"),
        ((2, 3, 4), (3, 5, 1, 3), "[1, 0:2, 1:3]"),
        ((2, 3, 4), (3, 6, 0, 4), "[1:2, :, :]"),
        ((2, 3, 4), (1, 5, 0, 2), ".numpy().reshape(6, 4)[1:5, 0:2]"),
        ((7,), (0, 1, 2, 5), "[2:5]"),
        ((), (0, 1, 0, 1), "[()]"),
    ],
)
def test_the_line_of_python_reads_the_region(shape, region, line):
    values = np.arange(int(np.prod(shape, dtype=int)), dtype=np.float32).reshape(shape)
    tensor = holdall.Tensor.of("w", values)
    matrix = Matrix(tensor)
    assert matrix.write_line(Region(*region)) == line
    assert np.array_equal(eval(f"tensor{line}", {"tensor": tensor}).ravel(), matrix.read(Region(*region)).ravel())


def test_the_line_of_python_is_copied_however_long_it_is(browser, look, tmp_path, values):
    path = tmp_path / ("a-folder-with-a-name-of-some-length/" * 4) / "model.safetensors"
    path.parent.mkdir(parents=True)
    holdall.save(path, {"model.layers.10.self_attn.q_proj.weight": values[:64, :64]})
    look(path, page="tensor?row=0")
    browser.find_text("model.safetensors", "#tensor-code")
    hidden, beyond = browser.run(
        "const line = document.querySelector('#tensor-code'), box = line.parentElement.getBoundingClientRect();"
        "const icon = document.querySelector('.code .copy').getBoundingClientRect();"
        "return [line.scrollWidth - line.clientWidth, icon.right - box.right]"
    )
    assert hidden > 0 and beyond <= 0


@pytest.mark.parametrize("shape", [(2, 384), (384, 2), (1, 1), (8, 3)])
def test_few_rows_and_columns_have_a_number_each(browser, look, tmp_path, shape):
    holdall.save(tmp_path / "a.safetensors", {"w": np.ones(shape, np.float32)})
    look(tmp_path / "a.safetensors", page="tensor?row=0")
    wait_for_tensor(browser)
    for axis, count in zip("yx", shape, strict=True):
        texts = browser.run(
            f"return [...document.querySelectorAll('#tensor-heat .{axis}tick text')].map(t => t.textContent)"
        )
        assert len(set(texts)) == len(texts) and all(0 <= int(text) <= count for text in texts)
        if count <= 8:
            assert sorted(map(int, texts)) == list(range(count))
    for plot, count in zip(("rows", "columns"), shape, strict=True):
        texts = browser.run(
            f"return [...document.querySelectorAll('#tensor-{plot} .xtick text')].map(t => t.textContent)"
        )
        assert len(set(texts)) == len(texts) and all(0 <= int(text) <= count for text in texts)


@pytest.mark.parametrize("name", ["a\x00b\x1b[1m", "\u202eevil.txt", "\u200b", "quote'\"", "x" * 5000])
def test_the_line_of_python_reads_the_tensor_whatever_its_name(name, tmp_path):
    from holdall.viewer.pages.tensor import _write_code
    from holdall.viewer.subject import Subject

    path = tmp_path / "it's a \u200b model.safetensors"
    holdall.save(path, {"other": np.ones(2, np.float32), name: np.arange(6, dtype=np.float32).reshape(2, 3)})
    subject = Subject.examine(str(path))
    line = _write_code(subject, list(subject.model).index(name), "[1:2, 0:2]")
    assert line.isprintable() and len(line) < 1000
    assert eval(line, {"holdall": holdall}).tolist() == [[3.0, 4.0]]
    subject.close()
