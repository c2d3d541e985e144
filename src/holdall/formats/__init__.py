"""One folder a format: layout, rules, reader, writer."""
