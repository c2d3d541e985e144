"""Files of other programs: named for what they are, and never called damaged."""

import io
import json
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

import holdall
from holdall.format.onnx.wire import field


def make_pickle():
    """{"model": an object of scikit-learn}, written by hand: pickle.dumps would import the class."""
    forest = b"csklearn.ensemble._forest\nRandomForestClassifier\n)\x81"
    return b"\x80\x02}X\x05\0\0\0model" + forest + b"s."


def make_zip(*names):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, b"{}")
    return out.getvalue()


def make_tar():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model_config.yaml"))
    return out.getvalue()


def make_npy():
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


FOREIGN = {
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(60), "is a TensorFlow Lite (LiteRT) model"),
    "ort": (b"\x18\0\0\0ORTM" + bytes(60), "internal format of ONNX Runtime"),
    "pte": (b"\x18\0\0\0ET12" + bytes(60), "is an ExecuTorch program"),
    "weights": (
        b"\x15\0\0\0\2" + bytes(59) + b"\xef\xbe\xad\xde" + bytes(60),
        "is the file of weights of a Core ML package",
    ),
    "engine": (b"ftrt" + bytes(60), "is a TensorRT engine"),
    "h5": (b"\x89HDF\r\n\x1a\n" + bytes(100) + b"model_weights" + bytes(9), "is an HDF5 file of Keras weights"),
    "hdf": (b"\x89HDF\r\n\x1a\n" + bytes(100), "is an HDF5 file: read it with h5py"),
    "keras": (make_zip("metadata.json", "config.json", "model.weights.h5"), "is a Keras model"),
    "zip": (make_zip("readme.txt"), "is a zip archive without tensors"),
    "mlmodel": (field(1, 4) + field(2, field(1, b"x")) + field(500, b"abc"), "is a Core ML model"),
    "pb": (field(1, 1) + field(2, b"graph"), "a TensorFlow SavedModel has the same fields"),
    "sklearn": (make_pickle(), "is a pickle that names sklearn.ensemble._forest.RandomForestClassifier (scikit-learn)"),
    "pickle": (pickle.dumps({"a": 1}), "is a pickle of plain values. It is no PyTorch checkpoint"),
    "ftz": (b"\xba\x16\x4f\x2f\x0c" + bytes(60), "is a fastText model"),
    "crfsuite": (b"lCRF" + bytes(60), "is a CRFsuite model"),
    "param": (b"7767517\n2 2\nInput data 0 1 data\n", "is the graph of an ncnn model"),
    "graph": (field(1, field(1, b"input") + field(2, b"Placeholder")), "is a TensorFlow graph (GraphDef"),
    "tensor": (field(1, 2) + field(1, 3) + field(2, 1) + field(9, bytes(24)), "is a single ONNX tensor (TensorProto"),
    "dlib": (b"\1\1\1\rloss_metric_2" + bytes(60), "is a network of dlib"),
    "fst": (b"\xd6\xfd\xb2\x7e\6\0\0\0vector" + bytes(60), "is a transducer of OpenFst"),
    "lm": (b"Trie Language Model" + bytes(60), "is a language model of PocketSphinx"),
    "onnxjson": (
        b'{\n  "ir_version": "8",\n  "graph": {}\n}',
        "is an ONNX model as JSON: load it with onnx.load(path, 'json')",
    ),
    "onnxtxt": (b'<\n  ir_version: 8,\n  opset_import: ["" : 17]\n>\ng (float x) => (float y) {}', "'onnxtxt'"),
    "textproto": (b'ir_version: 8\nproducer_name: "x"\ngraph {\n}\n', "'textproto'"),
    "ggml": (b"lmgg" + bytes(60), "is a ggml file from before GGUF"),
    "nemo": (make_tar(), "is a tar archive, as NeMo checkpoints are"),
    "xml": (b'<?xml version="1.0"?>\n<net name="m" version="11">', "is the graph of an OpenVINO model"),
    "unknown": (b"\x01\x02\x03\xff" * 30, "begins with b'"),
}
FAILED = {
    "empty": (b"", "is an empty file"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
    "html": (b"<!DOCTYPE html><html>Not found</html>", "is an HTML page: the download may have failed"),
    "zeros": (bytes(4096), "begins with zeros only"),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("suffix", ["bin", "own"])
def test_a_model_of_another_program_is_named_and_not_called_damaged(tmp_path, kind, suffix):
    data, text = FOREIGN[kind]
    path = tmp_path / f"model.{kind if suffix == 'own' else suffix}"
    path.write_bytes(data)
    with pytest.raises(holdall.ForeignError) as caught:
        holdall.open(path)
    assert text in str(caught.value)
    report = holdall.verify(path, level="strict")
    assert (report.verdict, report.ok) == ("not read", False)
    assert [finding.severity for finding in report.findings] == ["unread"]
    assert text in report.findings[0].message
    assert (report.format, report.findings[0].rule) == (None, "core.format")
    assert str(report).endswith("(unknown format, level strict)")


@pytest.mark.parametrize("form", ["json", "textproto", "onnxtxt"])
def test_the_texts_that_onnx_writes_are_named_with_the_word_that_loads_them(tmp_path, form):
    onnx = pytest.importorskip("onnx")
    y = onnx.helper.make_tensor_value_info("y", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["w"], ["y"])], "g", [], [y])
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.any", form)
    with pytest.raises(holdall.ForeignError) as caught:
        holdall.open(tmp_path / "model.any")
    assert f"onnx.load(path, {form!r})" in str(caught.value)
    onnx.save(onnx.load(tmp_path / "model.any", form), tmp_path / "model.onnx")
    with holdall.open(tmp_path / "model.onnx") as model:
        assert model["w"].numpy().tolist() == [1, 1]


def test_tensors_of_onnx_test_data(tmp_path):
    onnx = pytest.importorskip("onnx")
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.float32(1),
        np.zeros((0, 3)),
        np.arange(300000),
        np.array(["a", "b"]),
    ):
        data = onnx.numpy_helper.from_array(np.asarray(array), "x").SerializeToString()
        (tmp_path / "input_0.pb").write_bytes(data)
        with pytest.raises(holdall.ForeignError, match="is a single ONNX tensor"):
            holdall.open(tmp_path / "input_0.pb")


@pytest.mark.parametrize("kind", FAILED)
def test_a_failed_download_is_not_ok(tmp_path, kind):
    data, text = FAILED[kind]
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(tmp_path / "model.bin")
    assert text in str(caught.value) and not isinstance(caught.value, holdall.ForeignError)
    assert holdall.verify(tmp_path / "model.bin").verdict == "not ok"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["saved_model.pb", "variables/variables.index"], "is a TensorFlow SavedModel"),
        (["Manifest.json", "Data/com.apple.CoreML/model.mlmodel"], "is a Core ML package"),
        (["ckpt.data-00000-of-00001", "ckpt.index"], "is a TensorFlow checkpoint"),
        (["notes.txt"], "is a folder: none of the formats"),
        (["notes.txt", "model.pth"], r"is a folder, and no model by itself: open the file model\.pth in it"),
        (["net.onnx"], r"is a folder, and no model by itself: open the file net\.onnx in it"),
        (
            ["config.json", "pytorch_model.bin", "training_args.bin", "optimizer.pt"],
            r"open the file pytorch_model\.bin in it\. Beside it is training state: optimizer\.pt, training_args\.bin$",
        ),
        (["optimizer.bin"], r"open the file optimizer\.bin in it$"),
        (["b.pt", "a.npy"], r"is a folder, and no model by itself: open its files one by one: a\.npy, b\.pt"),
    ],
)
def test_folders(tmp_path, names, text):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(holdall.ForeignError, match=text):
        holdall.open(tmp_path)
    assert holdall.verify(tmp_path).verdict == "not read"


def test_exit_codes(tmp_path):
    from click.testing import CliRunner

    from holdall.cli import main

    holdall.save(tmp_path / "good.safetensors", {"w": np.zeros(3)})
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "good.safetensors").read_bytes()[:-1])
    (tmp_path / "m.tflite").write_bytes(FOREIGN["tflite"][0])

    def run(command, *names):
        return CliRunner().invoke(main, [command, *(str(tmp_path / name) for name in names)])

    for command in ("verify", "info"):
        assert run(command, "good.safetensors").exit_code == 0
        assert run(command, "m.tflite", "good.safetensors").exit_code == 3
        assert run(command, "m.tflite", "cut.safetensors").exit_code == 1
    shown = run("verify", "m.tflite").output
    assert "not read" in shown and "not ok" not in shown
    told = json.loads(CliRunner().invoke(main, ["verify", str(tmp_path / "m.tflite"), "--json"]).output)
    assert (told["ok"], told["verdict"]) == (False, "not read")


def test_intact_files_beyond_holdall_are_not_called_damaged(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    with zipfile.ZipFile(tmp_path / "lzma.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", make_npy())
    header = json.dumps({"w": {"dtype": "F3_NEW", "shape": [8], "data_offsets": [0, 3]}}).encode()
    (tmp_path / "new.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
    for name in ("objects.npz", "lzma.npz", "new.safetensors"):
        assert holdall.verify(tmp_path / name).verdict == "not read", name
    limits = holdall.Limits(tensors=1)
    holdall.save(tmp_path / "two.safetensors", {"a": np.zeros(3), "b": np.zeros(3)})
    assert holdall.verify(tmp_path / "two.safetensors", limits=limits).verdict == "not read"
