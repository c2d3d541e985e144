"""Tokenizers from Hugging Face folders to GGUF, or to a vocabulary, and back, without the libraries of either."""

from __future__ import annotations

from holdall.recipes.tokenizers.from_gguf import tokenizer_from_gguf
from holdall.recipes.tokenizers.from_vocab import VOCAB_FILE, tokenizer_from_vocab
from holdall.recipes.tokenizers.to_gguf import GgufTokenizer, list_stated_ids, tokenizer_to_gguf

__all__ = ["VOCAB_FILE", "GgufTokenizer", "list_stated_ids", "tokenizer_from_gguf", "tokenizer_from_vocab"]
__all__ += ["tokenizer_to_gguf"]
