"""The bytes of a file: annotated, page by page, with the way to a tensor and back."""

from __future__ import annotations

import numpy as np
import pytest

import holdall


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.oinf"
    holdall.save(path, {"first": np.arange(2000, dtype=np.float32), "second": np.arange(6, dtype=np.int16)})
    return path


def row_at(browser, offset):
    """The bytes of a row, as the page shows them."""
    return browser.run(
        "const row = document.querySelector(`#bytes-grid .ag-center-cols-container [row-id='${arguments[0]}']`);"
        "return row && [...row.querySelectorAll('.byte')].sort((a, b) => a.ariaColIndex - b.ariaColIndex)"
        ".map(each => each.innerText)", f"{offset:08x}",
    )  # fmt: skip


def test_the_page_shows_the_bytes_of_the_file(browser, look, model):
    look(model, page="bytes")
    data = model.read_bytes()
    browser.wait(lambda: row_at(browser, 0))
    assert bytes.fromhex("".join(row_at(browser, 0))) == data[:16]
    browser.click("#bytes-next")
    browser.wait(lambda: row_at(browser, 512))
    assert bytes.fromhex("".join(row_at(browser, 512))) == data[512:528]
    browser.click("#bytes-last")
    last = (len(data) - 1) // 16 * 16
    browser.wait(lambda: row_at(browser, last))
    assert bytes.fromhex("".join(row_at(browser, last))) == data[last:]


def test_a_click_on_a_byte_shows_its_owner_and_its_field(browser, look, model):
    look(model, page="bytes")
    browser.click("#bytes-grid [row-id='00000000'] [col-id='b0']")
    browser.find_text("header", "#bytes-meaning")
    browser.click("#bytes-grid [row-id='00000000'] [col-id='b5']")
    browser.find_text("0x5 (5)", "#bytes-meaning")
    browser.wait(lambda: "version" in [each.text for each in browser.find_all("#bytes-meaning .here")])


def test_from_a_tensor_to_its_bytes_and_back(browser, look, model):
    look(model, page="tensor?row=0")
    with holdall.open(model) as opened:
        offset = opened["first"].offset
    browser.click("#tensor-bytes")
    browser.find_text(f"{offset:#x}", "#bytes-meaning")
    browser.find_text("[0] = 0.0", "#bytes-meaning")
    browser.type("#bytes-place", hex(offset + 4 * 77 + 1))
    browser.find("#bytes-place").send_keys("\n")
    browser.find_text("[77] = 77.0", "#bytes-meaning")
    browser.click("#bytes-tensor")
    browser.find_text("first", "h1")


def test_a_byte_of_the_second_file_belongs_to_its_own_tensor(browser, look, tmp_path):
    tensors = {f"w{n}": np.arange(n * 1000, n * 1000 + 1000, dtype=np.float32) for n in range(3)}
    holdall.save(tmp_path / "model", tensors, format="hf", max_shard_size=4000)
    look(tmp_path / "model", page="bytes")
    with holdall.open(tmp_path / "model") as opened:
        files = [source.name.rpartition("/")[2] for source in opened.sources if not source.is_folder]
        number = files.index("model-00002-of-00003.safetensors")
        offset = opened["w1"].offset
    browser.choose("#bytes-file", "model-00002-of-00003.safetensors")
    browser.wait(lambda: f"file={number}" in browser.driver.current_url)
    with (tmp_path / "model" / "model-00002-of-00003.safetensors").open("rb") as file:
        head = [f"{byte:02x}" for byte in file.read(16)]
    browser.wait(lambda: row_at(browser, 0) == head, "the first bytes of the second file")
    browser.type("#bytes-place", hex(offset + 4 * 5))
    browser.find("#bytes-place").send_keys("\n")
    browser.find_text("[5] = 1005.0", "#bytes-meaning")
    row = (offset + 20) // 16 * 16 + 16
    browser.wait(lambda: row_at(browser, row))
    browser.click(f"#bytes-grid [row-id='{row:08x}'] [col-id='b0']")
    browser.find_text(f"[{(row - offset) // 4}] = {1000 + (row - offset) // 4}.0", "#bytes-meaning")
    browser.click("#bytes-tensor")
    browser.find_text("w1", "h1")


def test_findings_are_marked(browser, look, model):
    data = bytearray(model.read_bytes())
    data[5] = 99
    model.write_bytes(data)
    look(model, page="bytes?at=5")
    browser.find_text("error", "#bytes-meaning .badge")
    assert browser.find("#bytes-grid [row-id='00000000'] .marked").text == "63"


def test_a_damaged_page_is_marked_over_its_whole_range(browser, look, tmp_path):
    path = tmp_path / "model.aero"
    holdall.save(path, {"w": np.arange(4096, dtype=np.float32)}, page_hash=4096)
    data = bytearray(path.read_bytes())
    with holdall.open(path) as opened:
        shard = next(chunk.offset for chunk in opened.native.chunks if chunk.fourcc == "WTSH")
    data[shard + 4096 + 777] ^= 1
    path.write_bytes(data)
    base = look(path)
    browser.find_text("page 1 of", "#findings")
    browser.open(f"{base}bytes?at={shard + 4096}")

    def list_marked():
        rows = "[...document.querySelectorAll('#bytes-grid .ag-center-cols-container [row-id]')]"
        return browser.run(
            f"return {rows}.flatMap(row => [...row.querySelectorAll('.byte')].map(cell =>"
            " [parseInt(row.getAttribute('row-id'), 16) + parseInt(cell.getAttribute('col-id').slice(1), 16),"
            " cell.classList.contains('marked')]))"
        )

    first = shard + 4096
    cells = browser.wait(lambda: dict(list_marked()), "the bytes")
    assert {at: marked for at, marked in cells.items() if at >= first - 64} == {
        at: at >= first for at in cells if at >= first - 64
    }
    browser.open(f"{base}bytes?at={first + 4095}")
    browser.find_text("page 1 of", "#bytes-meaning")
    cells = browser.wait(lambda: dict(list_marked()), "the bytes")
    assert cells[first + 4095] and not cells[first + 4096]


def test_a_click_on_the_strip_goes_there(browser, look, model):
    look(model, page="bytes")
    box = browser.wait(lambda: browser.run(
        "const drag = document.querySelector('#bytes-strip .nsewdrag'); if (!drag) return null;"
        "const box = drag.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]"
    ))  # fmt: skip
    browser.wait(lambda: row_at(browser, 0))
    browser.click_at(box[0] + box[2] / 2, box[1] + box[3] / 2)
    browser.find_text("payload", "#bytes-meaning")
    size = model.stat().st_size
    browser.wait(lambda: any(row_at(browser, at) for at in range(size // 2 // 16 * 16 - 800, size // 2 + 800, 16)))


@pytest.mark.parametrize("at", ["-5", "0xzz", "99999999999999999", "", "1" * 60])
def test_an_offset_that_is_none_shows_a_page(browser, look, model, at):
    look(model, page=f"bytes?at={at}&file=7")
    browser.wait(lambda: browser.find_all("#bytes-grid .byte"))


def test_the_page_fits_a_window(browser, look, tmp_path):
    path = tmp_path / "model.oinf"
    holdall.save(path, {f"h.{n}.weight": np.arange(2000, dtype=np.float32) for n in range(40)})
    base = look(path, page="bytes")
    with holdall.open(path) as opened:
        offset = opened["h.7.weight"].offset
    measure = "const root = document.documentElement; return root.scrollHeight <= root.clientHeight"
    for at in (0, offset):
        browser.open(f"{base}bytes?at={at}")
        browser.wait(lambda at=at: row_at(browser, at // 16 * 16))
        browser.find_text("belongs to", "#bytes-meaning")
        browser.wait(lambda: browser.run(measure), "a page as high as the window")
