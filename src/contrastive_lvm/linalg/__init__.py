"""Linear algebra and numerical methods on plain arrays; nothing here knows a model."""
