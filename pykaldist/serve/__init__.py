"""A finished model in use elsewhere. Read `export.py` (formats, each tried after it is written), then `model_card.py`."""
