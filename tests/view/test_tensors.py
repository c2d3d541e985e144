"""The table of all tensors: rows on demand, filter and sort, statistics that come in the background."""

from __future__ import annotations

import numpy as np
import pytest

import holdall


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    random = np.random.default_rng(3)
    tensors = {f"h.{n}.weight": random.normal(size=(n % 7 + 1, 5)).astype(np.float32) for n in range(900)}
    tensors["h.0.bias"] = np.array([np.nan, 0, 0, 7], np.float32)
    path = tmp_path_factory.mktemp("table") / "model.safetensors"
    holdall.save(path, tensors)
    return path


def names(browser):
    cells = browser.run(
        "return [...document.querySelectorAll('.ag-pinned-left-cols-container .ag-row')]"
        ".sort((a, b) => a.getAttribute('row-index') - b.getAttribute('row-index')).map(r => r.innerText)"
    )
    return cells if cells and all(cells) else None


def cell(browser, name, column):
    """The text of a cell in the row of a tensor."""
    return browser.run(
        "const row = [...document.querySelectorAll('.ag-pinned-left-cols-container .ag-row')]"
        ".find(r => r.innerText === arguments[0]); if (!row) return null;"
        "const i = row.getAttribute('row-index');"
        "const c = document.querySelector(`.ag-center-cols-container [row-index='${i}'] [col-id='${arguments[1]}']`);"
        "return c && c.innerText", name, column,
    )  # fmt: skip


def click_header(browser, column):
    browser.click(f".ag-header-cell[col-id='{column}'] .ag-header-cell-label")


def test_rows_come_when_they_are_scrolled_to(browser, look, model):
    look(model, page="tensors")
    with holdall.open(model) as opened:
        expected = list(opened)
    browser.wait(lambda: names(browser))
    assert names(browser)[:5] == expected[:5]
    browser.run("window.dash_ag_grid.getApi('tensors').ensureIndexVisible(900, 'bottom')")
    browser.wait(lambda: names(browser) and names(browser)[-1] == expected[-1])
    browser.find_text("901 tensors", "#tensors-count")


def test_statistics_are_those_of_numpy(browser, look, model):
    look(model, page="tensors?filter=h.0.*")
    with holdall.open(model) as opened:
        values = opened["h.0.weight"].numpy()
    browser.wait(lambda: cell(browser, "h.0.weight", "mean"))
    assert float(cell(browser, "h.0.weight", "mean")) == pytest.approx(values.mean(), rel=5e-3)
    assert float(cell(browser, "h.0.weight", "std")) == pytest.approx(values.std(), rel=5e-3)
    assert float(cell(browser, "h.0.weight", "min")) == pytest.approx(values.min(), rel=5e-3)
    browser.wait(lambda: cell(browser, "h.0.bias", "nan") == "1")
    assert cell(browser, "h.0.bias", "zeros") == "2" and cell(browser, "h.0.bias", "max") == "7"
    browser.find_text("statistics: complete", "#tensors-progress")


def test_names_are_filtered_by_pattern_and_by_part(browser, look, model):
    look(model, page="tensors")
    browser.wait(lambda: names(browser))
    browser.type("#tensors-filter", "h.12?.*")
    browser.find_text("10 of 901 tensors", "#tensors-count")
    browser.wait(lambda: names(browser) == [f"h.12{n}.weight" for n in range(10)])
    browser.type("#tensors-filter", "BIAS")
    browser.wait(lambda: names(browser) == ["h.0.bias"])
    browser.type("#tensors-filter", "none such")
    browser.find_text("0 of 901 tensors", "#tensors-count")


def test_rows_are_sorted_by_any_column(browser, look, model):
    look(model, page="tensors")
    browser.wait(lambda: names(browser))
    click_header(browser, "name")  # falling first
    browser.wait(lambda: names(browser) and names(browser)[0] == "h.99.weight")
    click_header(browser, "name")
    browser.wait(lambda: names(browser) and names(browser)[:2] == ["h.0.bias", "h.0.weight"])
    browser.find_text("statistics: complete", "#tensors-progress")
    click_header(browser, "max")
    browser.wait(lambda: names(browser) and names(browser)[0] == "h.0.bias")


def test_the_order_of_rows_is_that_of_numpy(model):
    from holdall.viewer.subject import Subject

    subject = Subject.examine(str(model))
    subject.statistics.task.keep()
    subject.statistics.task.wait()
    with holdall.open(model) as opened:
        maxima = np.array([np.nanmax(opened[name].numpy()) for name in opened])
        sizes = np.array([opened[name].nbytes for name in opened])
    assert subject.rows.select("", [("max", True)]).tolist() == np.argsort(-maxima, kind="stable").tolist()
    assert subject.rows.select("", [("bytes", False)]).tolist() == np.argsort(sizes, kind="stable").tolist()
    subject.close()


def test_the_work_ends_when_no_page_asks(monkeypatch):
    from holdall.viewer import task as module

    seconds, steps = [0.0], []
    monkeypatch.setattr(module, "monotonic", lambda: seconds[0])

    def work(progress):
        for number in range(len(steps), 100):
            seconds[0] += 1  # each step takes a second of this clock
            progress(number, 100)
            steps.append(number)

    task = module.Task(work)
    task.keep()
    task.wait()
    assert task.state == "stopped" and len(steps) == module._LEASE
    task.keep()
    task.wait()
    assert task.state == "stopped" and len(steps) == 2 * module._LEASE
    monkeypatch.setattr(module, "_LEASE", 1000.0)
    task.keep()
    task.wait()
    assert task.state == "done" and steps == list(range(100))


def test_the_filter_is_there_again_after_a_tensor(browser, look, model):
    look(model, page="tensors")
    browser.wait(lambda: names(browser))
    browser.type("#tensors-filter", "h.12?.*")
    browser.wait(lambda: names(browser) == [f"h.12{n}.weight" for n in range(10)])
    browser.click(".ag-center-cols-container .ag-row .ag-cell")
    browser.find_text("h.120.weight", "h1")
    browser.find_text("tensors that match h.12?.*", "#tensor-back")
    browser.click("#tensor-back")
    browser.wait(lambda: browser.find("#tensors-filter").get_attribute("value") == "h.12?.*")
    browser.wait(lambda: names(browser) == [f"h.12{n}.weight" for n in range(10)])


def test_the_longest_name_is_shown_whole(browser, look, tmp_path):
    long = "bert.encoder.layer.11.attention.output.LayerNorm."
    tensors = {long + end: np.ones(2, np.float32) for end in ("weight", "bias")}
    holdall.save(tmp_path / "long.safetensors", tensors)
    holdall.save(tmp_path / "short.safetensors", {"w": np.ones(2, np.float32)})
    measure = "const cell = document.querySelector('.ag-row [col-id=name]');" \
        "return cell && cell.innerText && [cell.offsetWidth, cell.scrollWidth - cell.clientWidth]"  # fmt: skip
    look(tmp_path / "long.safetensors", page="tensors")
    wide, hidden = browser.wait(lambda: browser.run(measure))
    assert hidden <= 0 and 320 < wide <= 480
    look(tmp_path / "short.safetensors", page="tensors")
    wide, hidden = browser.wait(lambda: browser.run(measure))
    assert hidden <= 0 and wide == 200
