"""The neutral content of a weight file: tensors, metadata, assets."""
