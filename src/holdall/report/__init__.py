"""Reports as files: a comparison or a quantization as HTML, Markdown or JSON."""
