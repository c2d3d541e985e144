"""Models of transformers from every container: the same tokens, each tensor read once, and clear refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, HashError, UnsupportedError
from holdall.model.ggml import find_blocks
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from tests.remote.servers import range_server

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

LLAMA = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
SRC = Path(holdall.__file__).parents[1]
SENTENCES = ["the quick brown fox jumps over the lazy dog", "hello world, hello fox", "größer als 12 Füchse"]
ASSETS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
PROMPT = [0, 5, 9, 30]


def make_tokenizer() -> Any:
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def save_model(model: Any, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama with its own tokenizer, as transformers saves it."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("transformers") / "llama"
    save_model(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)), path)
    make_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A folder to change."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def generate(model: Any) -> list[int]:
    tokens: list[int] = model.generate(torch.tensor([PROMPT]), max_new_tokens=8, do_sample=False)[0].tolist()
    return tokens


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def put_beside(folder: Path, file: Path) -> Path:
    for name in ASSETS:
        if (folder / name).exists():
            shutil.copy(folder / name, file.parent)
    return file


@pytest.fixture(scope="module")
def truth(folder: Path) -> Any:
    """The model as transformers loads it."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module")
def expected(truth: Any) -> list[int]:
    tokens = generate(truth)
    assert len(set(tokens)) > 6  # a model that repeats itself would compare nothing
    return tokens


CONTAINERS: dict[str, dict[str, Any]] = {
    "m.mcf": {},
    "m.aero": {},
    "m.safetensors": {},
    "m.gguf": {},
    "sharded": {"format": "hf", "max_shard_size": "20KB"},
    "carried.aero": {"carry": True},
    "carried.oinf": {"carry": True},
    "carried.npz": {"carry": True},
}
BESIDE = ("m.aero", "m.safetensors")  # hold tensors alone: the other files lie beside them


@pytest.mark.parametrize("name", ["", "model.safetensors", *CONTAINERS])
def test_every_container_gives_the_same_tokens(
    name: str, folder: Path, truth: Any, expected: list[int], tmp_path: Path
) -> None:
    path = folder / name
    if name in CONTAINERS:
        path = put_beside(folder, tmp_path / name) if name in BESIDE else tmp_path / name
        holdall.convert(folder, path, **CONTAINERS[name])
    model, tokenizer = holdall.transformers.load(path)
    own = transformers.AutoTokenizer.from_pretrained(folder)
    assert generate(model) == expected
    assert type(model) is type(truth)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.generation_config.eos_token_id == 1
    assert not model.training
    for sentence in SENTENCES:
        assert tokenizer(sentence).input_ids == own(sentence).input_ids
        assert tokenizer.decode(tokenizer(sentence).input_ids) == sentence
    for key, value in truth.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


@pytest.mark.parametrize("stated_in", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("name", ["", "m.mcf", "m.gguf", "m.aero", "carried.aero"])
def test_every_container_ends_a_text_at_each_of_several_ids(
    name: str, stated_in: str, copy: Path, expected: list[int], tmp_path: Path
) -> None:
    third = expected[len(PROMPT) + 2]
    if stated_in == "config.json":
        (copy / "generation_config.json").unlink()
        change_config(copy, eos_token_id=[1, third])
    else:
        stated = json.loads((copy / stated_in).read_text()) | {"eos_token_id": [1, third]}
        (copy / stated_in).write_text(json.dumps(stated))
    path = copy / name
    if name:
        path = put_beside(copy, tmp_path / name) if name in BESIDE else tmp_path / name
        holdall.convert(copy, path, **CONTAINERS[name])
    model, _ = holdall.transformers.load(path)
    assert generate(model) == generate(transformers.AutoModelForCausalLM.from_pretrained(copy))
    assert generate(model) == expected[: len(PROMPT) + 3]


@pytest.mark.parametrize("name", ["m.mcf", "m.gguf", "llama/model.safetensors", "sharded/model.safetensors.index.json"])
def test_a_url_gives_the_same_tokens(name: str, folder: Path, truth: Any, expected: list[int], tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "llama")
    made = tmp_path / name.partition("/")[0]
    if not made.exists():
        holdall.convert(folder, made, **CONTAINERS[made.name])
    served = {f"/{path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with range_server(served) as server:
        model, tokenizer = holdall.transformers.load(f"{server.url}/{name}")
        assert server.log.sent < 2 * sum(len(data) for path, data in served.items() if path.startswith(f"/{made.name}"))
    own = transformers.AutoTokenizer.from_pretrained(folder)
    assert generate(model) == expected
    for sentence in SENTENCES:
        assert tokenizer(sentence).input_ids == own(sentence).input_ids
    for key, value in truth.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_of_gptrs(tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = {**LLAMA, "tie_word_embeddings": tied, "head_dim": 16}
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**config))
    save_model(model, tmp_path / "folder")
    holdall.convert(tmp_path / "folder", tmp_path / "m.gptrs")
    loaded, tokenizer = holdall.transformers.load(tmp_path / "m.gptrs")
    assert tokenizer is None
    assert generate(loaded) == generate(model)
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) is tied


def test_an_asset_of_mcf_is_used_and_not_what_lies_beside_it(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder, tmp_path / "m.mcf")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    model, _ = holdall.transformers.load(tmp_path / "m.mcf")
    assert type(model).__name__ == "LlamaForCausalLM"


def test_what_a_recipe_leads_back_from_may_be_carried(folder: Path, expected: list[int], tmp_path: Path) -> None:
    holdall.convert(folder, tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.gguf", tmp_path / "m.aero", carry=True)
    model, tokenizer = holdall.transformers.load(tmp_path / "m.aero")
    own = transformers.AutoTokenizer.from_pretrained(folder)
    assert generate(model) == expected
    assert tokenizer(SENTENCES[0]).input_ids == own(SENTENCES[0]).input_ids


@pytest.mark.parametrize("name", ["m.npz", "m.aero"])
def test_a_carried_file_takes_its_configuration_from_beside_it(name: str, folder: Path, tmp_path: Path) -> None:
    """A file of bf16, which npz holds as other bytes: the original says what they are."""
    holdall.convert(folder / "model.safetensors", tmp_path / "half.safetensors", cast="bf16")
    holdall.convert(tmp_path / "half.safetensors", tmp_path / name, carry=True)
    change_config(Path(shutil.copytree(folder, tmp_path / "beside")), dtype=None, torch_dtype=None)
    model, tokenizer = holdall.transformers.load((tmp_path / name).rename(tmp_path / "beside" / name))
    truth = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert tokenizer is not None
    for key, value in truth.state_dict().items():
        assert model.state_dict()[key].dtype is torch.bfloat16
        assert torch.equal(model.state_dict()[key], value), key


def rewrite(path: Path, **changed: Any) -> None:
    """Store a carrier again, with other tensors of some names, or without those that are None."""
    with holdall.open(path) as model:
        arrays = {name.replace(".", "_"): name for name in model}
        own = {arrays[name]: values for name, values in changed.items()}
        tensors = [tensor for tensor in model.tensors if tensor.name not in own]
        tensors += [Tensor.of(name, values) for name, values in own.items() if values is not None]
        holdall.save(path.with_name("again.aero"), model.replace(tensors=tensors))


def test_tensors_that_were_changed_in_a_carrier_count_with_their_new_values(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder, tmp_path / "m.aero", carry=True)
    new = np.linspace(0.5, 1.5, 32).astype(np.float16)  # another dtype than that which was carried
    rewrite(tmp_path / "m.aero", model_norm_weight=new)
    model, _ = holdall.transformers.load(tmp_path / "again.aero")
    assert torch.equal(model.model.norm.weight, torch.from_numpy(new).float())


def test_a_tensor_that_is_gone_from_a_carrier_is_missing(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder, tmp_path / "m.aero", carry=True)
    rewrite(tmp_path / "m.aero", model_norm_weight=None)
    refuse(tmp_path / "again.aero", ContentError, "does not fit LlamaForCausalLM: it has no model.norm.weight")


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16", "float16"])
def test_another_type(folder: Path, dtype: str) -> None:
    model, _ = holdall.transformers.load(folder, dtype=dtype)
    wanted = torch.float16 if dtype == "float16" else torch.bfloat16
    truth = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=wanted)
    for name, value in truth.state_dict().items():
        assert model.state_dict()[name].dtype is wanted
        assert torch.equal(model.state_dict()[name], value)


def test_a_type_that_torch_does_not_have(folder: Path) -> None:
    with pytest.raises(UnsupportedError, match="has no type 'float7'"):
        holdall.transformers.load(folder, dtype="float7")


def test_the_type_of_the_weights_counts_where_the_configuration_states_none(copy: Path, tmp_path: Path) -> None:
    change_config(copy, dtype=None, torch_dtype=None)
    holdall.convert(copy, tmp_path / "half", format="hf", cast="bf16")
    assert holdall.transformers.load(tmp_path / "half")[0].dtype is torch.bfloat16


def test_each_tensor_is_read_once_and_on_the_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdall.torch import to_torch

    read: list[tuple[str, object]] = []

    def count(tensor: Any, device: object = None) -> Any:
        if device != "meta":
            read.append((tensor.name, device))
        return to_torch(tensor, device)

    monkeypatch.setattr("holdall.transformers.to_torch", count)
    holdall.transformers.load(folder, device="cpu")
    with holdall.open(folder) as model:
        assert sorted(read) == sorted((name, "cpu") for name in model)


FAMILIES = {
    "GPT2LMHeadModel": {"vocab_size": 61, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2},
    "BertModel": {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    "MixtralForCausalLM": {**LLAMA, "num_local_experts": 3, "tie_word_embeddings": False},
    "Qwen3ForCausalLM": {**LLAMA, "head_dim": 16},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_other_families(name: str, tmp_path: Path) -> None:
    """Those whose parameters are named or shaped otherwise in a checkpoint, or which have buffers of their own."""
    torch.manual_seed(1)
    made = getattr(transformers, name)
    model = made(made.config_class(**FAMILIES[name])).eval()
    save_model(model, tmp_path / "folder")
    loaded, tokenizer = holdall.transformers.load(tmp_path / "folder")
    assert tokenizer is None
    tokens = torch.tensor([[3, 5, 7]])
    with torch.no_grad():
        assert torch.equal(loaded(tokens)[0], model(tokens)[0])
    assert {name for name, _ in loaded.named_buffers()} == {name for name, _ in model.named_buffers()}


def test_quantized_tensors_are_decoded(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder, tmp_path / "m.mcf", quantize="q8")
    model, _ = holdall.transformers.load(tmp_path / "m.mcf")
    with holdall.open(tmp_path / "m.mcf") as file:
        assert "q8" in {str(tensor.dtype).rpartition(".")[2] for tensor in file.tensors}
        for name, value in model.state_dict().items():
            assert name == "lm_head.weight" or torch.equal(value, file[name].torch().to(value.dtype))


def make_q8(name: str, shape: tuple[int, ...]) -> Tensor:
    """Random blocks of 32 numbers with one scale, as GGUF has them."""
    blocks = np.zeros(int(np.prod(shape)) // 32, [("scale", "<f2"), ("codes", "i1", 32)])
    blocks["scale"] = 0.01
    blocks["codes"] = np.random.default_rng(5).integers(-127, 128, (len(blocks), 32))
    return Tensor(name, find_blocks("ggml.q8_0"), shape, InMemory(blocks.tobytes()))


def test_quantized_matrices_that_a_recipe_turns_are_decoded_first(tmp_path: Path) -> None:
    torch.manual_seed(2)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=300, n_inner=64)
    save_model(transformers.GPT2LMHeadModel(config), tmp_path / "folder")
    holdall.convert(tmp_path / "folder", tmp_path / "plain.gguf")
    with holdall.open(tmp_path / "plain.gguf") as model:
        turned = [name for name in model if name.endswith(("attn_qkv.weight", "ffn_up.weight", "attn_output.weight"))]
        assert len(turned) == 6
        tensors = [make_q8(each.name, each.shape) if each.name in turned else each for each in model.tensors]
        holdall.save(tmp_path / "m.gguf", model.replace(tensors=tensors))
    built, _ = holdall.transformers.load(tmp_path / "m.gguf")
    with holdall.open(tmp_path / "m.gguf") as file:
        wanted = file["blk.1.attn_qkv.weight"].torch().T
        assert torch.equal(built.transformer.h[1].attn.c_attn.weight, wanted)
        assert torch.equal(built.transformer.h[0].mlp.c_fc.weight, file["blk.0.ffn_up.weight"].torch().T)


LOAD = """
import re, sys, torch, transformers
from pathlib import Path
import holdall.transformers
from transformers import AutoTokenizer, GenerationConfig, LlamaForCausalLM
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
holdall.transformers.load(sys.argv[1])  # a small one, so that everything is imported
before = peak()
dtype = sys.argv[3] if len(sys.argv) > 3 else None
model, _ = holdall.transformers.load(sys.argv[2], dtype=dtype)
parameters = {value.data_ptr(): value.numel() * value.element_size() for value in model.parameters()}
print(peak() - before, sum(parameters.values()))
"""
MEMORY = 1.3  # times the weights, at the most


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 435 MB in bf16."""
    from holdall.model.dtypes import find_dtype
    from holdall.model.model import Model
    from holdall.model.payload import Computed
    from holdall.model.tensor import Tensor

    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 14, "vocab_size": 8000}
    config = transformers.LlamaConfig(**{**LLAMA, **sizes, "num_attention_heads": 16}, dtype="bfloat16")
    config.architectures = ["LlamaForCausalLM"]
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items() if name != "lm_head.weight"}
    block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    data = bytes(block.view(torch.uint8).numpy())

    def payload(size: int) -> Computed:
        return Computed(size, lambda: (memoryview(data)[: size - at] for at in range(0, size, len(data))))

    dtype = find_dtype("bf16")
    tensors = [Tensor(name, dtype, shape, payload(dtype.nbytes(shape))) for name, shape in shapes.items()]
    path = tmp_path_factory.mktemp("large") / "folder"
    files = {"config.json": config.to_json_string().encode()}
    holdall.save(path, Model(tensors, assets=files), format="hf", fsync=False)
    return path


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["", "float16"])
@pytest.mark.parametrize("name", ["folder", "m.mcf", "m.gguf"])
def test_weights_are_in_memory_once(name: str, dtype: str, folder: Path, large: Path, tmp_path: Path) -> None:
    path = large if name == "folder" else tmp_path / name
    if name != "folder":
        holdall.convert(large, path, fsync=False)
    line = [sys.executable, "-c", LOAD, str(folder), str(path), *([dtype] if dtype else [])]
    done = subprocess.run(line, capture_output=True, check=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)})
    grown, weights = map(int, done.stdout.split())
    print(f"{name} {dtype}: {grown / 1e6:.0f} MB for {weights / 1e6:.0f} MB of weights")
    assert weights > 400e6
    assert grown < MEMORY * weights


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse(path: Path, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        holdall.transformers.load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_configuration(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder, tmp_path / "m.aero")
    refuse(tmp_path / "m.aero", UnsupportedError, "m.aero: has no config.json, in it or beside it")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": None}, "config.json states no model_type"),
        ({"model_type": "phantom"}, "has no models of the type 'phantom'"),
        ({"architectures": ["PhantomForCausalLM"]}, "has no architecture 'PhantomForCausalLM'"),
        ({"architectures": ["AutoModelForCausalLM"]}, "has no architecture 'AutoModelForCausalLM'"),
        ({"hidden_size": "wide"}, "transformers cannot build"),
    ],
)
def test_configurations_that_say_nothing_of_use(copy: Path, values: dict[str, Any], message: str) -> None:
    change_config(copy, **values)
    refuse(copy, UnsupportedError, message)


def test_a_model_with_code_of_its_own(copy: Path) -> None:
    """The code is in the folder, and is not run."""
    for name in ("configuration_phantom", "modeling_phantom"):
        (copy / f"{name}.py").write_text(f"open({str(copy / 'ran')!r}, 'w')\n")
    places = {"AutoConfig": "configuration_phantom.A", "AutoModelForCausalLM": "modeling_phantom.B"}
    change_config(copy, model_type="phantom", auto_map=places)
    refuse(copy, UnsupportedError, "it comes with code of its own, which is never run")
    assert not (copy / "ran").exists()


def test_an_architecture_is_found_without_its_name(copy: Path) -> None:
    change_config(copy, architectures=None)
    assert type(holdall.transformers.load(copy)[0]).__name__ == "LlamaForCausalLM"


def test_all_that_does_not_fit_is_listed_at_once(copy: Path) -> None:
    with holdall.open(copy) as model:
        arrays = {name: model[name].copy() for name in model}
    del arrays["model.norm.weight"], arrays["model.layers.1.mlp.up_proj.weight"]
    arrays["model.layers.0.self_attn.q_proj.weight"] = arrays["model.layers.0.self_attn.k_proj.weight"]
    arrays["model.embed_tokens.weight"] = arrays["model.embed_tokens.weight"][:299]
    holdall.save(copy / "model.safetensors", arrays)
    with pytest.raises(ContentError) as caught:
        holdall.transformers.load(copy)
    assert str(caught.value) == (
        f"{copy}: does not fit LlamaForCausalLM: it has no model.layers.1.mlp.up_proj.weight, model.norm.weight; "
        "model.embed_tokens.weight has the shape [299, 32] and needs [300, 32]; "
        "model.layers.0.self_attn.q_proj.weight has the shape [16, 32] and needs [32, 32]"
    )


def test_a_wrong_hash_stays_a_wrong_hash(folder: Path, tmp_path: Path) -> None:
    path = put_beside(folder, tmp_path / "m.aero")
    holdall.convert(folder, path, tensor_hash=True)
    with holdall.open(path) as model:
        place = model["model.norm.weight"].offset
    data = bytearray(path.read_bytes())
    assert place is not None
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(HashError):
        holdall.transformers.load(path)


def test_names_of_assets_do_not_leave_the_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(inner))
    from holdall.transformers import _build_from_files

    files = {"../escaped.json": b"{}", "/tmp/escaped.json": b"{}", "config.json": b"{}", "code.py": b""}
    assert _build_from_files(transformers, files) == (None, None)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["inner"]


def test_a_file_does_not_choose_the_code_that_computes(copy: Path) -> None:
    change_config(copy, attn_implementation="someone/kernels", _attn_implementation="someone/kernels")
    model, _ = holdall.transformers.load(copy)
    assert model.config._attn_implementation in ("sdpa", "eager")


def test_without_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    refuse(folder, UnsupportedError, "pip install holdall[transformers]")
