"""What people do with models: each operation reads models and writes files, and knows formats only by contract."""
