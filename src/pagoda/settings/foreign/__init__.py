"""Other caches' configurations, read into the Pagoda settings that match them."""

from pagoda.settings.foreign.read import import_file
from pagoda.settings.foreign.translation import Fate, Line, Translation

__all__ = ["Fate", "Line", "Translation", "import_file"]
