"""The live cache: carries plans out."""
