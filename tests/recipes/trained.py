"""Tokenizers of each kind, trained by the ``tokenizers`` library on the test's own texts, as the files of a folder."""

from __future__ import annotations

import base64
import json
import struct

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.pre_tokenizers import ByteLevel

from holdall.recipes.tokenizers.pre_tokenizers import pre_tokenizer_of
from tests.recipes.sentences import WORDS

ROW = pre_tokenizer_of("llama-bpe")
SPECIAL = ["<s>", "</s>", "<|start|>", "<|end|>"]
TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"


def template(tokenizer, before="<s>", after=None) -> dict:
    """A post-processor that puts tokens around a text, and around each of two; BERT has no second [CLS]."""
    words = " ".join(name for name in (f"{before}:0" if before else "", "$A:0", f"{after}:0" if after else "") if name)
    again = f"{before}:1" if before and before != "[CLS]" else ""
    kind = 0 if after == "</s>" else 1  # T5 has one type
    pair = " ".join(name for name in (words, again, f"$B:{kind}", f"{after}:{kind}" if after else "") if name)
    known = [(name, tokenizer.token_to_id(name)) for name in (before, after) if name]
    return processors.TemplateProcessing(single=words, pair=pair, special_tokens=known)


def byte_level(row, *, vocab_size=600, bos=False) -> Tokenizer:
    """A byte-level BPE tokenizer with the parts that a row of the table states."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=row.ignore_merges))
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [fill(step) for step in row.steps]}
    document["normalizer"] = {"type": "NFC"} if row.nfc else None
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIAL, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(list(WORDS.values()) * 2, trainer)
    tokenizer.add_tokens(["<tool>", "</tool>"])
    return with_frame(tokenizer, "<s>" if bos else None)


def fill(step) -> dict:
    """A step with what the library wants to be stated."""
    return {**step, "trim_offsets": True} if step["type"] == "ByteLevel" else dict(step)


def with_frame(tokenizer, before, after=None) -> Tokenizer:
    """The tokenizer with tokens put around a text."""
    if before or after:
        tokenizer.post_processor = template(tokenizer, before, after)
    return tokenizer


def folder_of(tokenizer, *, template=TEMPLATE, **config) -> dict[str, bytes]:
    """The files that a folder has for this tokenizer."""
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", **config}
    if template:
        stated["chat_template"] = template
    stated = {key: value for key, value in stated.items() if value is not None}
    return {"tokenizer.json": tokenizer.to_str().encode(), "tokenizer_config.json": json.dumps(stated).encode()}


SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
UNDO = [SPACES | {"pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
STYLES = {
    "llama": ({"type": "Sequence", "normalizers": [PREPEND, SPACES]}, None),
    "always": (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}),
    "first": (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}),
    "words": (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
    "gemma": (
        SPACES,
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    ),
}


def sentence_bpe(style, *, closed=False, vocab_size=500, bos="<s>") -> Tokenizer:
    """A SentencePiece-like BPE tokenizer with byte fallback. ``closed`` lists all pairs that give a token.

    The library lists one pair for a token, the pair it learnt; converters from SentencePiece list all.
    """
    normalizer, pre_tokenizer = STYLES[style]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    document = json.loads(tokenizer.to_str())
    # Trained on words, else whole sentences become tokens.
    document["normalizer"], document["pre_tokenizer"] = normalizer, {**STYLES["words"][1], "prepend_scheme": "never"}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<unk>", *SPECIAL], show_progress=False)
    tokenizer.train_from_iterator([f" {text}" for text in list(WORDS.values())[:8]] * 3, trainer)
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = pre_tokenizer
    document["decoder"] = {"type": "Sequence", "decoders": UNDO if style == "gemma" else [*UNDO, STRIP]}
    learnt = list(document["model"]["vocab"])
    tokens = [*learnt[:5], *(f"<0x{byte:02X}>" for byte in range(256)), *learnt[5:]]
    vocab = document["model"]["vocab"] = {token: id for id, token in enumerate(tokens)}
    if closed:
        merges = [pair for token in dict.fromkeys("".join(pair) for pair in document["model"]["merges"])
                  for pair in sorted(([token[:at], token[at:]] for at in range(1, len(token))), key=len)
                  if pair[0] in vocab and pair[1] in vocab]  # fmt: skip
        document["model"]["merges"] = merges
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<tool>", "</tool>")])
    return with_frame(tokenizer, bos)


METASPACE = STYLES["words"][1]
DOUBLED = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
UNIGRAM = {
    "plain": lambda charsmap: ([], [{**METASPACE, "split": False}]),
    "words": lambda charsmap: ([], [METASPACE]),
    "t5": lambda charsmap: ([charsmap], [{"type": "WhitespaceSplit"}, METASPACE]),
    "t5-strip": lambda charsmap: (
        [charsmap, {"type": "Strip", "strip_left": False, "strip_right": True}, {**DOUBLED, "content": "▁"}],
        [METASPACE],
    ),
    "xlm-r": lambda charsmap: ([charsmap, {**DOUBLED, "content": " "}], [METASPACE]),
}
REPLACEMENTS = dict.fromkeys(("\n", "\t", "\r", "\u00a0", "\u3000", "\u2009"), " ")
REPLACEMENTS |= {"：": ":", "ﬁ": "fi", "½": "1/2"}


def unigram(style="plain", *, vocab_size=400) -> Tokenizer:
    """A unigram tokenizer that puts </s> after a text."""
    tokenizer = Tokenizer(models.Unigram())
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = METASPACE
    tokenizer = Tokenizer.from_str(json.dumps(document))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=["<pad>", "</s>", "<unk>", "<s>", "<|start|>", "<|end|>"],
        unk_token="<unk>", show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(list(WORDS.values())[:8] * 3, trainer)
    document = json.loads(tokenizer.to_str())
    normalizers, steps = UNIGRAM[style]({"type": "Precompiled", "precompiled_charsmap": charsmap(REPLACEMENTS)})
    document["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    document["decoder"] = METASPACE
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<tool>", "</tool>")])
    return with_frame(tokenizer, None, "</s>")


def charsmap(replacements) -> str:
    """The compiled map of characters of SentencePiece, in base64: a trie as a double array, then the replacements.

    Each node has a block of 256 units of its own, in which its children lie by their byte and its value at 0.
    """
    strings = b""
    nodes = [{}]  # children by byte, the value under None
    for letters, text in replacements.items():
        node = nodes[0]
        for byte in letters.encode():
            if byte not in node:
                nodes.append({})
                node[byte] = len(nodes) - 1
            node = nodes[node[byte]]
        node[None] = len(strings)
        strings += text.encode() + b"\0"
    units = [0] * (256 * (len(nodes) + 1))
    base = [256 * (number + 1) for number in range(len(nodes))]
    units[0] = base[0] << 10
    for number, node in enumerate(nodes):
        for byte, child in node.items():
            if byte is None:
                units[base[number]] = 1 << 31 | child
            else:
                place = base[number] ^ byte
                units[place] = (place ^ base[child]) << 10 | (None in nodes[child]) << 8 | byte
    array = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(array)) + array + strings).decode()


def word_pieces(*, lowercase=True, strip_accents=None, vocab_size=500) -> Tokenizer:
    """A WordPiece tokenizer as BERT has it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(list(WORDS.values())[:11] * 3, trainer)
    return with_frame(tokenizer, "[CLS]", "[SEP]")


WORD_PIECES = {name: f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
WORD_PIECES_CONFIG = {f"{name}_token": token for name, token in WORD_PIECES.items()}
WORD_PIECES_CONFIG |= {"bos_token": None, "eos_token": None}
