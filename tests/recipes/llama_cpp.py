"""llama.cpp as the oracle: a model of one layer with random weights around a tokenizer, and a server that tokenizes."""

from __future__ import annotations

import json
import urllib.request

import gguf
import numpy as np

KINDS = {"string": gguf.GGUFValueType.STRING, "u32": gguf.GGUFValueType.UINT32, "bool": gguf.GGUFValueType.BOOL}
ITEMS = {"f32": gguf.GGUFValueType.FLOAT32, "i32": gguf.GGUFValueType.INT32, "string": gguf.GGUFValueType.STRING}
ITEMS["u8"] = gguf.GGUFValueType.UINT8
WIDTH = 32
SQUARES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
LAYER = dict.fromkeys(SQUARES, (WIDTH, WIDTH))
LAYER |= {"attn_norm": (WIDTH,), "ffn_norm": (WIDTH,)}


def write_tiny_model(path, entries) -> None:
    """Write a llama of one layer that holds the entries of a tokenizer, with the format's own library."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    for entry in entries:
        head, _, item = entry.kind.partition(":")
        if head == "array":
            writer.add_key_value(entry.key, entry.value, gguf.GGUFValueType.ARRAY, sub_type=ITEMS[item])
        else:
            writer.add_key_value(entry.key, entry.value, KINDS[entry.kind])
    tokens = next(entry.value for entry in entries if entry.key == "tokenizer.ggml.tokens")
    shapes = {"token_embd": (len(tokens), WIDTH), "output": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.{name}": shape for name, shape in LAYER.items()}
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """A server of llama.cpp on loopback with this tokenizer."""

    def __init__(self, folder, entries) -> None:
        import xllamacpp

        path = str(folder / "tiny.gguf")
        write_tiny_model(path, entries)
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = 128
        params.n_parallel = 1
        params.warmup = False
        params.cpuparams.n_threads = 1
        self._server = xllamacpp.Server(params)

    def _ask(self, where, question):
        where = f"{self._server.listening_address}/{where}"
        request = urllib.request.Request(where, json.dumps(question).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def encode(self, text, *, special=True) -> list[int]:
        """The ids of a text, with the tokens that are put around it."""
        question = {"content": text, "add_special": special, "parse_special": True}
        return self._ask("tokenize", question)["tokens"]

    def decode(self, ids) -> str:
        """The text of ids."""
        return self._ask("detokenize", {"tokens": ids})["content"]
