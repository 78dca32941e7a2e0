"""Programs that check this repository or generate files. No script is part of the package."""
