"""The OINF front: models from dataclasses and dicts, with sizes, metadata and quant parameters."""
