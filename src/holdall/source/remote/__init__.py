"""Sources behind URLs: http(s), s3, gs, az and the Hugging Face hub."""
