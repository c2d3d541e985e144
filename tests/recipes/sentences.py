"""Two hundred texts of mixed scripts: words, code, white space, emoji, special tokens and the marks of chats."""

from __future__ import annotations

WORDS = {
    "latin": "The quick brown fox jumps over a lazy dog, doesn't it? I'LL say we've won 1234567 times; naïve Straße!",
    "vietnamese": "Tôi không thể tin được điều đó đã xảy ra ở Hà Nội ngày 24 tháng 12.",
    "cyrillic": "Съешь ещё этих мягких французских булок, да выпей чаю в 2024 году! ПриветМир",
    "greek": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "cjk": "今天天气很好，我们去公园玩吧。東京都の天気は晴れです。오늘은 날씨가 좋네요 123",
    "arabic": "السلام عليكم ورحمة الله، كيف حالك اليوم؟ ٢٠٢٤",
    "hebrew": "שלום עולם, מה שלומך היום?",
    "hindi": "नमस्ते दुनिया, आज मौसम अच्छा है। १२३",
    "thai": "สวัสดีชาวโลก วันนี้อากาศดีมาก",
    "emoji": "Great 👍🏽 work 🎉🎉 family 👨‍👩‍👧‍👦 flag 🇩🇪 heart ❤️ ok",
    "symbols": "a≤b ∑x² €100 £5 ©2024 ½ → ← ™ …“quoted” ‘single’ – dash — em",
    "code": "def f(x: int) -> str:\n    return f'{x!r}' if x >= 10_000 else \"no\"  # why\n\n\tfor i in range(3): i()",
    "json": '{"key": [1, 2.5e-3, null, true], "nested": {"a": "b\\n"}}',
    "url": "https://example.com/path?query=value&other=1#frag me@mail.org C:\\Users\\x",
    "math": "3.14159 + 2 * (7 - 5) / 1e10 == 0x1F; 10% of 1,000,000",
}
SPACES = ["a  b", "a   b", "a\tb", "a\n\nb", "a \n b", "line\r\nend", "tail ", "tail  ", "\n", "\t\t", "x\n\n\n"]
SPACES += ["a\n  b\n\tc", "two\u00a0words", "thin\u2009space", "wide\u3000space", "zero\u200bwidth"]
MARKS = ["<|start|>user\nHello<|end|>\n<|start|>assistant\n", "<s>[INST] Hi there [/INST]", "<|end|>", "a<|end|>b"]
MARKS += ["a <|end|> b", "<|end", "<s>text</s>", "<tool>call(1)</tool>", "<|start|><|end|>", "x<tool> y"]


def sentences(*, without=()) -> list[str]:
    """All texts but those that a function in ``without`` names: a test that leaves some out says why."""
    found = list(WORDS.values())
    for text in WORDS.values():
        parts = text.split(" ")
        found += [part for part in parts if part][:9]
        found.append(text[: len(text) // 2])
        found.append(text[len(text) // 3 :].lstrip())
    names = list(WORDS)
    found += [f"{WORDS[a][:20]} {WORDS[b][:20]}" for a, b in zip(names, names[1:] + names[:1], strict=True)]
    found += [f"{WORDS[a]}\n{WORDS[b]}" for a, b in zip(names, names[2:] + names[:2], strict=True)]
    found += SPACES + MARKS
    unique = list(dict.fromkeys(found))
    assert len(unique) >= 200
    return [text for text in unique if not any(drop(text) for drop in without)]
