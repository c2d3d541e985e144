import xml.etree.ElementTree as ET

from bench.svg import HEIGHT, LINE, TOP, WIDTH, Axis, Series, draw

NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}
SERIES = [
    Series("holdall: a & b", [(10, 1e-4), (1e6, 0.5)], ours=True),
    Series("<other>", [(1e6, 0.5), (10, 2e-4)]),
    Series("third", [(1000, 3e-3)]),
]


def drawn(series=SERIES):
    return draw("Title", Axis("tensors", "count"), Axis("time", "seconds"), series)


def test_it_is_xml_with_every_name_axis_and_line():
    root = ET.fromstring(drawn())
    texts = [text.text for text in root.iterfind("svg:text", NAMESPACE)]
    assert {"Title", "tensors", "time", "holdall: a & b", "<other>", "third"} <= set(texts)
    assert {"10", "1,000,000", "100 µs", "1 s"} <= set(texts)
    lines = root.findall("svg:polyline", NAMESPACE)
    assert [line.get("class") for line in lines] == ["line", "line other", "line other"]


def test_points_are_drawn_from_left_to_right_and_inside():
    root = ET.fromstring(drawn())
    for line in root.iterfind("svg:polyline", NAMESPACE):
        numbers = [float(number) for number in line.get("points").split()]
        assert numbers[::2] == sorted(numbers[::2])
        assert all(0 <= x <= WIDTH for x in numbers[::2]) and all(TOP <= y <= HEIGHT for y in numbers[1::2])


def test_names_do_not_cover_each_other():
    many = [Series(f"series {n}", [(10, 1.0), (100, 1.0)]) for n in range(13)]
    root = ET.fromstring(drawn(many))
    places = [float(text.get("y")) for text in root.iterfind("svg:text", NAMESPACE) if text.text.startswith("series")]
    assert len(places) == 13
    assert all(b - a >= LINE - 0.2 for a, b in zip(sorted(places), sorted(places)[1:], strict=False))
    assert max(places) <= HEIGHT


def test_the_same_series_give_the_same_bytes():
    assert drawn() == drawn()


def test_it_is_readable_on_dark_pages():
    assert "prefers-color-scheme: dark" in drawn()
